"""Every combination of versions is either refused with a sentence or rendered into files without a fault."""

from __future__ import annotations

import itertools
import random
import subprocess
from pathlib import Path

import pytest

from gpt_tune import rendering
from gpt_tune.containers import catalogue, pairs, render, shelf
from gpt_tune.errors import UserError
from gpt_tune.lint.report import lint
from tests.containers.support import container
from tests.recipes.specs import DiskFiles

KNOWN = catalogue.load()
ALL = list(
    itertools.product(
        KNOWN.images, KNOWN.bases, KNOWN.efa, ["base", "2.27.7", "2.28.9", *KNOWN.nccl], KNOWN.gdrcopy,
        ["1", "2", "64"], ["efa", "none"],
    )
)  # fmt: skip


def settings(choice: tuple[str, ...]) -> list[str]:
    _, base, efa, nccl, gdrcopy, nodes, network = choice
    return [
        f"base={base}",
        f"efa={efa}",
        f"nccl={nccl}",
        f"gdrcopy={gdrcopy}",
        f"nodes={nodes}",
        f"network={network}",
    ]


def test_each_is_refused_or_rendered() -> None:
    refused = 0
    for choice in ALL:
        chosen = container(choice[0], *settings(choice))
        found = pairs.problems(chosen)
        if found:
            with pytest.raises(UserError) as error:
                render.files(chosen, "/b")
            assert str(error.value).startswith(found[0].text)
            refused += 1
            continue
        text = next(f.content for f in render.files(chosen, "/b") if f.path == "Dockerfile").decode()
        assert "{{" not in text
        assert ("EFA_INSTALLER_VERSION=" in text) == (chosen.network == "efa")
        assert ("libnccl2=" in text) == (chosen.nccl != "base")
    assert len(ALL) > 1500
    assert 0.2 < refused / len(ALL) < 0.8


@pytest.mark.parametrize("seed", range(12))
def test_what_is_rendered_has_no_fault(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    choice = next(c for c in dice.sample(ALL, len(ALL)) if not shelf.take(c[0], settings(c)).problems)
    folder = tmp_path / "out"
    rendering.write(DiskFiles(), str(folder), shelf.take(choice[0], settings(choice)).files(str(folder)))
    assert [f"{f.file} {f.rule}: {f.message}" for f in lint([str(folder)]).findings] == []
    for script in folder.glob("*.sbatch"):
        subprocess.run(["bash", "-n", str(script)], check=True)
