"""What-if on every field: turned by a step, typed, refused with what would do, taken over; near misses mended."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from gpt_tune import clusters, planner
from gpt_tune.errors import UserError
from gpt_tune.layouts.choices import ACCUMULATION, ENGINE
from gpt_tune.planner.types import Plan, PlanRequest, Rejected
from gpt_tune.profiles.schema import LayoutChoice
from gpt_tune.workflows import choices, launch, ordering, turnables, twin, two_plans, whatif
from gpt_tune.workflows.binding import binding_words
from gpt_tune.workflows.draft import Draft
from tests.profiles.test_choices import EVERYTHING
from tests.profiles.test_whatif import best, draft_for
from tui.cli.commands import estimate as estimate_command
from tui.cli.commands import plan as plan_command
from tui.cli.plan_request import request_from

pytestmark = pytest.mark.usefixtures("home")


def lm_draft(model: str = "llama-3.1-70b", gpus: int = 64) -> Draft:
    return choices.put(draft_for(model, gpus, "p5"), "recipe", "megatron-lm")


TYPED = [
    ("tensor_parallel", "2", lambda t: t.result.plan.layout.tensor_parallel == 2),
    ("pipeline_parallel", "16", lambda t: t.result.plan.layout.pipeline_parallel == 16),
    ("zero_stage", "1", lambda t: t.result.plan.layout.zero_stage == 1),
    ("micro_batch_size", "1", lambda t: t.result.plan.layout.micro_batch_size == 1),
    ("recompute.granularity", "full", lambda t: t.result.plan.layout.recompute.layers == 1),
    ("recompute.granularity", "Selective", lambda t: t.result.plan.layout.recompute.granularity == "selective"),
    ("sequence_parallel", "on", lambda t: t.result.plan.layout.sequence_parallel),
    ("context_parallel", "2", lambda t: t.result.plan.layout.context_method == "ulysses"),
    ("flash_attention", "off", lambda t: not t.result.plan.layout.flash_attention),
    ("precision", "fp16", lambda t: t.result.plan.layout.precision == "fp16"),
    (ACCUMULATION, "fp32", lambda t: t.request.trainer.gradient_accumulation_dtype == "fp32"),
    ("fusions.bias_gelu", "false", lambda t: not t.result.plan.layout.fusions.bias_gelu),
    ("fusions.masked_softmax", "no", lambda t: not t.result.plan.layout.fusions.masked_softmax),
    ("global_batch_size", "1,536", lambda t: t.result.plan.layout.global_batch_size == 1536),
    ("seq_length", "8192", lambda t: t.request.seq_length == 8192),
    ("gpus", "128", lambda t: t.result.plan.layout.gpus == 128),
]  # fmt: skip


@pytest.mark.parametrize(("key", "text", "holds"), TYPED, ids=[f"{k}={v}" for k, v, _ in TYPED])
def test_a_typed_value_is_taken_and_estimated(key: str, text: str, holds: object) -> None:
    request, plan = best(draft_for("gpt-145b"))
    turned = whatif.typed(request, plan, key, text)
    assert turned.result.plan is not None
    assert turned.result.plan.rank == 0
    assert holds(turned)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("tensor_parallel", "seven", "whole number"),
        ("tensor_parallel", "0", "from 1 to"),
        ("tensor_parallel", "-8", "from 1 to"),
        ("tensor_parallel", "999999999999", "from 1 to"),
        ("zero_stage", "4", "from 0 to 3"),
        ("recompute.granularity", "some", "none, selective, full"),
        ("precision", "int8", "bf16"),
        ("flash_attention", "perhaps", "true or false"),
        (ACCUMULATION, "fp64", "fp32"),
        ("gpus", "63", "56"),
        ("gpus", "63", "64"),
        ("gpus", "0", "from 1 to"),
        ("gpus", "1e3", "from 1 to"),
        ("global_batch_size", "nan", "from 1 to"),
        ("global_batch_size", "²", "from 1 to"),
        ("seq_length", "", "from 1 to"),
        ("seq_length", "99999999999", "from 1 to"),
    ],
)
def test_what_cannot_be_typed_names_what_can_and_changes_nothing(key: str, text: str, words: str) -> None:
    request, plan = best(draft_for("gpt-145b"))
    turned = whatif.typed(request, plan, key, text)
    assert turned.request == request
    assert turned.result.plan is None
    assert not turned.result.legal
    (problem,) = turned.result.problems
    assert words in f"{problem.text} {problem.fix}"


def test_a_typed_value_that_is_illegal_is_estimated_all_the_same_and_explained() -> None:
    request, plan = best(draft_for("gpt-145b"))
    turned = whatif.typed(request, plan, "tensor_parallel", "7")
    assert not turned.result.legal
    assert any("96" in p.text or "64" in p.text for p in turned.result.problems)
    assert all(p.fix for p in turned.result.problems)


@pytest.mark.parametrize("kind", ["gpt-145b", "mixtral-8x7b", "llama-3.1-70b"])
def test_every_number_of_megatron_lm_turns_and_types(kind: str) -> None:
    request, plan = best(lm_draft(kind))
    recomputed = whatif.typed(request, plan, "recompute.granularity", "full").result.plan
    assert recomputed is not None
    longer = whatif.typed(request, recomputed, "context_parallel", "2").result.plan
    assert longer is not None
    keys = [t.key for t in whatif.turnables(request, longer.layout)]
    assert {
        "recompute.method",
        "recompute.layers",
        "context_method",
        "virtual_pipeline",
        ACCUMULATION,
    } <= set(keys)
    for number in whatif.turnables(request, longer.layout):
        assert number.means
        same = whatif.typed(request, longer, number.key, number.value)
        assert same.result.plan is not None, number
        assert same.result.plan.layout == longer.layout, number
        for by in (1, -1):
            assert whatif.turn(request, longer, number.key, by).result is not None


def test_fine_tuning_offers_only_what_its_trainer_has() -> None:
    request = planner.build_request("llama-3.1-8b", 8, gpu="h200", trainer="qlora")
    plan = planner.search(request).plans[0]
    keys = {t.key for t in whatif.turnables(request, plan.layout)}
    assert not keys & {
        "tensor_parallel",
        "pipeline_parallel",
        "expert_parallel",
        "virtual_pipeline",
        ACCUMULATION,
    }
    assert keys == {
        "zero_stage", "micro_batch_size", "recompute.granularity", "global_batch_size", "seq_length", "gpus",
    }  # fmt: skip
    named = {t.key: (t.label, t.value) for t in whatif.turnables(request, plan.layout)}
    assert named["zero_stage"] == ("strategy", "ddp")
    assert named["recompute.granularity"][0] == "checkpointing"
    for key, text in (("zero_stage", "zero3"), ("zero_stage", "ZeRO-2"), ("recompute.granularity", "on")):
        turned = whatif.typed(request, plan, key, text)
        assert turned.result.legal, turned
    up = whatif.turn(request, plan, "zero_stage", 1).result.plan
    assert up is not None
    assert up.layout.zero_stage == 2
    on = whatif.turn(request, up, "recompute.granularity", 1).result.plan
    assert on is not None
    assert on.layout.recompute.granularity == "full"
    assert "no lower" in whatif.turn(request, plan, "zero_stage", -1).note


def test_every_meaning_fits_a_line_of_80_columns() -> None:
    for label, means in (*turnables.NAMES.values(), *turnables.TUNING_NAMES.values()):
        assert len(means) <= 55 and label, means  # noqa: PT018


def test_what_a_job_needs_as_it_is_cannot_be_turned() -> None:
    held = whatif.held("llama2-finetune")
    assert "context_parallel" in held
    request, plan = best(draft_for("gpt-145b"))
    assert "context_parallel" not in {t.key for t in whatif.turnables(request, plan.layout, held)}
    assert whatif.held("megatron-deepspeed") == frozenset()
    assert whatif.held("no-such-recipe") == frozenset()


def test_at_either_end_it_says_so() -> None:
    request, plan = best(draft_for("llama-3.2-1b", 1, "h100"))
    for key in ("tensor_parallel", "gpus", "zero_stage"):
        assert "no lower" in whatif.turn(request, plan, key, -1).note
    assert whatif.turn(request, plan, "global_batch_size", 1).note == ""


def test_the_accumulation_type_is_taken_over_into_the_job() -> None:
    draft = draft_for("gpt-145b")
    request, plan = best(draft)
    turned = whatif.typed(request, plan, ACCUMULATION, "bf16")
    assert turned.result.plan is not None
    assert turned.result.plan.memory.device_gib < plan.memory.device_gib
    chosen = choices.choose(draft, turned.result.plan, turned.request)
    assert chosen.profile.trainer.gradient_accumulation_dtype == "bf16"
    assert choices.plan_request(chosen).trainer == turned.request.trainer
    files = {
        f.path: f.content.decode() for f in launch.preview(chosen).rendered.files if f.path.endswith(".json")
    }
    assert any('"grad_accum_dtype": "bf16"' in text for text in files.values())
    auto = whatif.typed(turned.request, turned.result.plan, ACCUMULATION, "auto")
    assert auto.request.trainer.gradient_accumulation_dtype is None


def test_a_fusion_that_is_turned_off_reaches_the_command() -> None:
    draft = draft_for("gpt-145b")
    request, plan = best(draft)
    turned = whatif.typed(request, plan, "fusions.bias_gelu", "off")
    chosen = choices.choose(draft, turned.result.plan, turned.request)  # type: ignore[arg-type]
    script = "\n".join(
        f.content.decode() for f in launch.preview(chosen).rendered.files if b"\0" not in f.content
    )
    assert "--no-bias-gelu-fusion" in script


@pytest.mark.parametrize(("model", "gpus"), [("gpt-145b", 64), ("mixtral-8x7b", 64), ("llama-3.1-70b", 16)])
def test_each_near_miss_with_a_change_advised_fits_with_it(model: str, gpus: int) -> None:
    request = choices.plan_request(draft_for(model, gpus, "p5"))
    found = planner.search(request)
    advised = [near for near in found.rejected if "=" in near.fix]
    assert any(near.rule == "out-of-memory" for near in advised)
    for near in advised:
        turned = whatif.mended(request, near)
        assert turned.result.legal, (near, turned.result.problems)
        assert turned.memory is None, near


@pytest.mark.parametrize(
    ("fix", "holds"),
    [
        ("pipeline_parallel=4 with tensor_parallel=4", {"pipeline_parallel": 4, "tensor_parallel": 4}),
        ("tensor_parallel=4 or 8", {"tensor_parallel": 4}),
        ("zero_stage=1 (or pipeline_parallel=1)", {"zero_stage": 1, "pipeline_parallel": 8}),
        ("recompute.granularity=full", {}),
        ("zero_stage=1, or run with --no-pipeline-parallel", {"zero_stage": 1}),
        ("gradient_accumulation_steps=7 with data_parallel=2", {"gradient_accumulation_steps": 7, "data_parallel": 2}),
    ],
)  # fmt: skip
def test_advice_is_followed_as_it_is_written(fix: str, holds: dict[str, int]) -> None:
    request, plan = best(draft_for("gpt-145b"))
    layout = replace(plan.layout, tensor_parallel=8, pipeline_parallel=8, data_parallel=1, zero_stage=0)
    turned = whatif.mended(request, Rejected(layout, "rule", "words", fix))
    assert turned.result.plan is not None
    for key, value in holds.items():
        assert getattr(turned.result.plan.layout, key) == value, key
    assert (turned.result.plan.layout.recompute.granularity == "full") is ("full" in fix)


def test_a_shorter_sequence_as_the_advice_is_another_question() -> None:
    request, plan = best(draft_for("gpt-145b"))
    near = Rejected(plan.layout, "rule", "words", "a sequence length of 1024 or 512")
    assert whatif.mended(request, near).request.seq_length == 1024


def test_what_is_legal_and_does_not_fit_says_so_with_the_change() -> None:
    request, plan = best(draft_for("gpt-145b"))
    turned = whatif.typed(request, plan, "tensor_parallel", "1")
    assert turned.result.legal
    assert turned.memory is not None
    assert "runs out of memory" in turned.memory.text
    assert turned.memory.fix
    assert whatif.typed(request, plan, "tensor_parallel", str(plan.layout.tensor_parallel)).memory is None


def test_more_gpus_as_the_advice_become_the_question() -> None:
    request = choices.plan_request(draft_for("gpt-1t", 8))
    near = planner.search(request).rejected[0]
    assert near.fix.endswith("GPUs")
    turned = whatif.mended(request, near)
    assert turned.request.gpus == int(near.fix.split()[0])
    assert turned.result.legal
    assert turned.result.plan is not None
    assert turned.result.plan.layout.gpus == turned.request.gpus


@pytest.mark.parametrize(
    ("fix", "gpus", "batch"),
    [("128 GPUs", 128, 256), ("384 GPUs with global_batch_size=768", 384, 768), ("--gpus 128", 128, 256)],
)
def test_a_number_of_gpus_as_the_advice_with_the_batch_that_it_names(fix: str, gpus: int, batch: int) -> None:
    request, plan = best(draft_for("gpt-145b"))
    turned = whatif.mended(request, Rejected(plan.layout, "rule", "words", fix))
    assert (turned.request.gpus, turned.request.global_batch_size) == (gpus, batch)
    assert turned.result.legal


def test_advice_that_is_no_change_leaves_the_layout_as_it_was() -> None:
    request = choices.plan_request(draft_for("gpt-145b"))
    near = planner.search(request).rejected[0]
    turned = whatif.mended(request, Rejected(near.layout, near.rule, near.text, "a smaller model"))
    assert turned.result.plan is not None
    assert turned.result.plan.layout.tensor_parallel == near.layout.tensor_parallel


# --- the command line says the same


def asked_by(command: str) -> PlanRequest:
    """The planner's question of a command line, parsed as the program parses it."""
    program, name, *words = shlex.split(command)
    assert program == "gpt-tune"
    parser = {"plan": plan_command, "estimate": estimate_command}[name].command
    with parser.make_context(name, words) as context:
        given = dict(context.params)
        for key in ("as_json", "sort", "explain", "compare"):
            given.pop(key, None)
        given["target_seconds"] = given.pop("target_step", None)
        given["within"] = given.pop("within", 5.0) / 100.0
        return request_from(**given)


def fixed_draft(draft: Draft, **fixed: object) -> Draft:
    return replace(draft, profile=replace(draft.profile, layout=LayoutChoice({**fixed})))


@pytest.mark.parametrize(
    "draft",
    [
        lambda: draft_for("gpt-145b"),
        lambda: draft_for("gpt-760m", 1, "h100"),
        lambda: lm_draft(),
        lambda: lm_draft("mixtral-8x7b"),
        lambda: choices.put(draft_for("llama-2-13b", 16, "p5"), "recipe", "llama2-finetune"),
        lambda: choices.put(draft_for("gpt-145b"), "training.dropout", "0.1"),
        lambda: choices.put(draft_for("gpt-145b"), "trainer.deepspeed", "0.17.6"),
        lambda: choices.put(draft_for("gpt-145b"), "training.global_batch_size", "512"),
        lambda: fixed_draft(draft_for("gpt-145b"), tensor_parallel=4, sequence_parallel=False),
        lambda: fixed_draft(draft_for("gpt-145b"), **{ENGINE: False, ACCUMULATION: "bf16"}),
        lambda: choices.put(draft_for("gpt-1.3b", 4, "h200"), "resources.gpus_per_node", "4"),
    ],
)
def test_the_command_for_a_question_asks_the_same_question(draft: object) -> None:
    made = draft()  # type: ignore[operator]
    request = choices.plan_request(made)
    again = asked_by(twin.plan_command(made, request))
    assert again == replace(request, cluster=again.cluster)
    plans = planner.search(request).plans
    assert [p.step for p in planner.search(again).plans] == [p.step for p in plans]
    for plan in plans[:2]:
        one = planner.estimate(asked_by(twin.estimate_command(made, request, plan.layout)), None)
        assert one.plan is not None
        assert (one.plan.layout, one.plan.step, one.plan.memory) == (plan.layout, plan.step, plan.memory)


@pytest.mark.parametrize("key", ["", "resources.partition", "resources.gpus_per_node"])
def test_the_command_on_a_cluster_names_it_and_its_partition(
    monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setattr(clusters, "available", lambda: ["dev", "local"])
    monkeypatch.setattr(clusters, "silent", dict)
    monkeypatch.setattr(clusters, "discover", lambda name=None: EVERYTHING[name or "dev"])
    draft = choices.put(choices.load_cluster(choices.start(), "dev"), "recipe", "megatron-deepspeed")
    if key:
        assert draft.cluster is not None
        per_node = draft.cluster.partitions[0].groups[0].gpus_per_node
        value = {
            "resources.partition": draft.cluster.partitions[0].name,
            "resources.gpus_per_node": str(per_node),
        }
        draft = choices.put(draft, key, value[key])
    request = choices.plan_request(draft)
    command = twin.plan_command(draft, request)
    assert "--cluster dev --partition" in command
    assert asked_by(command) == request
    best_one = planner.search(request).plans[0]
    assert asked_by(twin.estimate_command(draft, request, best_one.layout)).cluster == "dev"


def test_the_command_of_another_objective_names_it() -> None:
    draft = draft_for("gpt-145b")
    request = replace(choices.plan_request(draft), objective="headroom")
    assert asked_by(twin.plan_command(draft, request)) == replace(request, cluster=None)


def test_a_command_is_one_shell_word_each() -> None:
    draft = draft_for("gpt-145b")
    draft = replace(
        draft, profile=replace(draft.profile, model=replace(draft.profile.model, id="/a b/$(x).json"))
    )
    request = choices.plan_request(draft_for("gpt-145b"))
    assert shlex.split(twin.plan_command(draft, request))[3] == "/a b/$(x).json"


# --- orders, narrowing, two side by side


def test_orders_keep_every_plan_and_its_rank() -> None:
    _, plans = request_and_plans()
    for name in ordering.SORTS:
        assert sorted(p.rank for p in ordering.in_order(plans, name)) == [p.rank for p in plans]
    assert [p.memory.device_gib for p in ordering.in_order(plans, "memory")] == sorted(
        p.memory.device_gib for p in plans
    )
    assert [p.rank for p in ordering.in_order(plans, "rank")] == [p.rank for p in plans]
    with pytest.raises(UserError, match="memory"):
        ordering.in_order(plans, "memroy")


def request_and_plans() -> tuple[PlanRequest, tuple[Plan, ...]]:
    request = choices.plan_request(draft_for("gpt-145b"))
    return request, planner.search(request).plans


@pytest.mark.parametrize(
    ("text", "fixed"),
    [
        ("tp=8", {"tensor_parallel": 8}),
        (
            " TP=8,  Zero=1 recompute=none",
            {"tensor_parallel": 8, "zero_stage": 1, "recompute.granularity": "none"},
        ),
        ("flash=off fusions.bias_gelu=on", {"flash_attention": False, "fusions.bias_gelu": True}),
        ("", {}),
    ],
)
def test_a_search_is_narrowed_in_short_words(text: str, fixed: dict[str, object]) -> None:
    assert ordering.only(text) == fixed
    assert ordering.only(ordering.only_words(fixed)) == fixed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tp 8", "KEY=VALUE"),
        ("tq=8", "tp"),
        ("tp=many", "whole number"),
        ("gpus=8", "question"),
        ("zero=9", "0 to 3"),
    ],
)
def test_narrowing_that_will_not_do_is_one_sentence(text: str, words: str) -> None:
    with pytest.raises(UserError) as refused:
        ordering.only(text)
    assert words in str(refused.value)


def test_two_plans_as_data() -> None:
    _, plans = request_and_plans()
    both = two_plans.two_plans(plans[0], plans[2])
    data = both.to_json()
    assert data["differ"]
    assert all(pair["a"] != pair["b"] for pair in data["differ"].values())
    assert {f["key"] for f in data["figures"]} >= {"seconds", "device_gib", "model_tflops"}
    assert not two_plans.two_plans(plans[0], plans[0]).differ


def test_two_of_a_search_are_named_by_their_numbers() -> None:
    result = planner.search(choices.plan_request(draft_for("gpt-145b")))
    assert two_plans.of_search(result, "3, 1") == (result.plans[2], result.plans[0])
    for wrong in ("1", "1,99", "a,b", "1,2,3", ""):
        with pytest.raises(UserError, match="1,2"):
            two_plans.of_search(result, wrong)


@pytest.mark.parametrize(("model", "gpus"), [("gpt-145b", 64), ("gpt-760m", 1)])
def test_what_binds_is_the_largest_part_of_each(model: str, gpus: int) -> None:
    _, plan = best(draft_for(model, gpus))
    words = binding_words(plan)
    assert words.startswith("computing")
    worst = max(plan.memory.stages, key=lambda s: s.total)
    assert f"of {worst.total:.0f} GiB" in words
    assert len(words) <= 68  # a line of 80 columns
