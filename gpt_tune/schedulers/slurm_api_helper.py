"""Owns the process that holds pyslurm: requests as JSON lines in, answers out, and nothing else on its output.

libslurm prints where it likes, may wait for ever and may end the program. So it lives here, and the program
that asks has a time limit. Runs as a script with the standard library and pyslurm only.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any


def main() -> int:
    """Answer until the input ends."""
    # Whatever prints on standard output from now on goes where complaints go.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    _tell(answers, _hello())
    for line in sys.stdin:
        request = json.loads(line)
        _tell(answers, {"id": request["id"], **_answer(request)})
    return 0


def _tell(stream: Any, data: dict[str, Any]) -> None:
    stream.write(json.dumps(data) + "\n")
    stream.flush()


def _hello() -> dict[str, Any]:
    try:
        import pyslurm
    except Exception as error:  # noqa: BLE001  a broken extension raises anything; it must be told, not seen
        return {"pyslurm": None, "error": f"{type(error).__name__}: {error}"}
    return {"pyslurm": str(getattr(pyslurm, "__version__", ""))}


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    import pyslurm

    try:
        return {"answer": _DOES[request["do"]](pyslurm, request)}
    except pyslurm.RPCError as error:
        return {"refused": str(error), "errno": getattr(error, "errno", None)}
    except ValueError as error:
        # pyslurm checks a description before it sends it.
        return {"unsaid" if request["do"] == "submit" else "broken": f"{type(error).__name__}: {error}"}
    except Exception as error:  # noqa: BLE001  one bad answer must not end the process
        return {"broken": f"{type(error).__name__}: {error}"}


# -- what it can do -------------------------------------------------------------------------------
def _ping(pyslurm: Any, request: dict[str, Any]) -> Any:
    found = pyslurm.slurmctld.ping_primary()
    return {"responding": bool(found.is_responding)}


def _jobs(pyslurm: Any, request: dict[str, Any]) -> Any:
    """Jobs by number (several tasks of an array share one), or all of a user's."""
    wanted, uid = request.get("ids"), request.get("uid")
    numbers = None if wanted is None else {int(i) for i in wanted}
    return [
        _job(j)
        for j in pyslurm.Jobs.load().values()
        if (numbers is None or not numbers.isdisjoint((j.id, j.array_id, j.heterogeneous_id)))
        and (uid is None or j.user_id == uid)
    ]


def _job(j: Any) -> dict[str, Any]:
    return {
        "id": j.id,
        "array_id": j.array_id,
        "array_task": j.array_task_id,
        "array_waiting": j.array_tasks_waiting,
        "het_id": j.heterogeneous_id,
        "het_offset": j.heterogeneous_offset,
        "name": j.name,
        "state": str(j.state),
        "reason": j.state_reason,
        "nodes": j.num_nodes,
        "node_list": j.allocated_nodes,
        "gres": dict(j.gres_per_node or {}),
        "partition": j.partition,
        "submit": j.submit_time,
        "start": j.start_time,
        "end": j.end_time,
        "exit_code": j.exit_code,
        "signal": j.exit_code_signal,
        "comment": j.comment,
        "output": j.standard_output,
        "work_dir": j.working_directory,
    }


def _submit(pyslurm: Any, request: dict[str, Any]) -> Any:
    return pyslurm.JobSubmitDescription(**request["description"]).submit()


def _cancel(pyslurm: Any, request: dict[str, Any]) -> Any:
    pyslurm.Job(int(request["number"])).cancel()
    return True


def _signal(pyslurm: Any, request: dict[str, Any]) -> Any:
    pyslurm.Job(int(request["number"])).send_signal(request["name"], steps=request["steps"])
    return True


_DOES: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "ping": _ping,
    "jobs": _jobs,
    "submit": _submit,
    "cancel": _cancel,
    "signal": _signal,
}


if __name__ == "__main__":
    sys.exit(main())
