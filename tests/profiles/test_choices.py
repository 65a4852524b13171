"""Tests of the questions of a new run: steps, defaults, checks, implications; the same for every face."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpt_tune import clusters, planner
from gpt_tune.errors import SchedulerError, UserError
from gpt_tune.profiles import sites, store
from gpt_tune.profiles.schema import Environment, Profile, Resources, Site
from gpt_tune.schedulers.base import Cluster, NodeGroup, Partition
from gpt_tune.workflows import choices
from gpt_tune.workflows.choices import PLAN_ONLY, Draft

pytestmark = pytest.mark.usefixtures("home")


def group(gpu: str, per_node: int, nodes: int) -> NodeGroup:
    return NodeGroup(nodes, {"idle": nodes}, gpu, per_node, nodes * per_node, 64, 1_000_000)


LOCAL = Cluster("local", "local", "Linux", (Partition("local", True, "up", None, None, (group("", 0, 1),)),))
DEV = Cluster(
    "dev",
    "slurm",
    "24.11",
    (
        Partition("dev", True, "up", 7200, None, (group("b200", 8, 8),)),
        Partition("long", False, "up", 604800, None, (group("b200", 8, 8), group("h100", 8, 4))),
        Partition("cpu", False, "up", None, None, (group("", 0, 2),)),
    ),
)
EVERYTHING = {"local": LOCAL, "dev": DEV}


@pytest.fixture(autouse=True)
def _clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "available", lambda: ["dev", "local"])
    monkeypatch.setattr(clusters, "silent", dict)
    monkeypatch.setattr(clusters, "discover", lambda name=None: EVERYTHING[name or "dev"])


def local() -> Draft:
    return choices.load_cluster(choices.start(cluster="local"), "local")


def fresh() -> Draft:
    return choices.load_cluster(choices.start(), "dev")


def dev() -> Draft:
    """On the cluster, with the trainer chosen."""
    return choices.put(fresh(), "recipe", "megatron-deepspeed")


def planning(gpu: str = "p6-b200") -> Draft:
    return choices.put(choices.start(cluster=PLAN_ONLY), "resources.gpu", gpu)


def asked(draft: Draft) -> list[str]:
    return [s.id for s in choices.steps(draft) if not s.skip]


def value(draft: Draft, key: str) -> str:
    return next(f.value for step in choices.SPECS for f in choices.fields(draft, step) if f.key == key)


def source(draft: Draft, key: str) -> str:
    return next(f.source for step in choices.SPECS for f in choices.fields(draft, step) if f.key == key)


def test_slurm_comes_first_and_must_be_looked_at() -> None:
    draft = choices.start()
    assert draft.profile.cluster == "dev"
    assert choices.needs_cluster(draft) == "dev"
    assert choices.needs_cluster(dev()) is None
    assert choices.needs_cluster(planning()) is None


def test_without_gpus_the_check_is_offered_and_nothing_else_is_needed() -> None:
    draft = local()
    assert draft.recipe == "smoke"
    assert asked(draft) == ["cluster", "gpus", "training", "review"]
    assert choices.problems(draft) == []
    labels = {f.key: (f.label, f.unit) for f in choices.fields(draft, "gpus")}
    assert labels["resources.gpus"] == ("Processes", "processes")


def test_with_gpus_and_a_trainer_training_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEGATRON_PATH", "/opt/Megatron-DeepSpeed")
    draft = fresh()
    assert choices.problems(draft) == []
    assert choices.why_check(draft) == ""
    assert draft.recipe == "megatron-deepspeed"
    assert asked(draft) == ["cluster", "site", "gpus", "model", "training", "plan", "review"]
    assert value(draft, "resources.gpus") == "8"
    assert value(draft, "resources.partition") == "dev"
    assert value(draft, "training.global_batch_size") == "256"
    assert source(draft, "model.seq_length") == "the model"


def test_with_gpus_and_no_trainer_the_check_is_offered_and_every_answer_is_filled_in() -> None:
    draft = fresh()
    assert draft.recipe == "smoke"
    assert choices.problems(draft) == []
    assert asked(draft) == ["cluster", "site", "gpus", "training", "review"]
    why = next(f.help for f in choices.fields(draft, "training") if f.key == "recipe")
    assert "Megatron-DeepSpeed" in why
    assert "MEGATRON_PATH" in why
    assert choices.why_check(draft) == why
    assert choices.why_check(choices.put(draft, "recipe", "smoke")) == "", "chosen: nothing to explain"
    assert choices.why_check(local()) == "", "no GPUs: no trainer is missing"


def test_a_trainer_found_by_the_sites_answers_makes_training_the_default(tmp_path: Path) -> None:
    (tmp_path / "Megatron-DeepSpeed").mkdir()
    (tmp_path / "Megatron-DeepSpeed" / "pretrain_gpt.py").touch()
    draft = choices.put(fresh(), "site.run_root", str(tmp_path / "runs"))
    assert draft.recipe == "megatron-deepspeed"
    assert choices.put(draft, "site.run_root", str(tmp_path / "no" / "runs")).recipe == "smoke"
    chosen = choices.put(fresh(), "recipe", "smoke")
    assert choices.put(chosen, "site.run_root", str(tmp_path / "runs")).recipe == "smoke"


def test_a_trainer_named_by_the_kept_site_is_known() -> None:
    environment = Environment(variables={"MEGATRON_PATH": "/shared/mds"})
    sites.save(Site(cluster="dev", scheduler="slurm", run_root="/shared/runs", environment=environment))
    draft = fresh()
    assert draft.recipe == "megatron-deepspeed"
    assert value(draft, "trainer.path") == "/shared/mds"


def test_planning_for_elsewhere_keeps_the_trainer() -> None:
    assert planning().recipe == "megatron-deepspeed"
    assert choices.put(fresh(), "cluster", PLAN_ONLY).recipe == "megatron-deepspeed"


def test_a_model_in_the_users_settings_is_never_swapped_for_the_check() -> None:
    draft = choices.start(Profile(), cluster="dev", origins={"model.id": "your settings"})
    origins = {k: v for k, v in draft.origins.items() if k != "recipe"}
    assert choices.load_cluster(replace(draft, origins=origins), "dev").recipe == "megatron-deepspeed"


def test_a_kept_site_is_not_asked_again() -> None:
    sites.save(Site(cluster="dev", scheduler="slurm", run_root="/shared/runs", account="a"))
    draft = dev()
    assert draft.site_known
    assert "site" not in asked(draft)
    assert draft.site.account == "a"


def test_saving_the_site_keeps_it() -> None:
    draft = choices.save_site(choices.put(dev(), "site.run_root", "/shared/x"))
    assert draft.site_known
    kept = sites.load("dev")
    assert kept is not None
    assert (kept.run_root, kept.scheduler) == ("/shared/x", "slurm")


def test_the_users_choice_of_job_survives_another_cluster() -> None:
    draft = choices.put(dev(), "recipe", "smoke")
    assert choices.load_cluster(choices.put(draft, "cluster", "dev"), "dev").recipe == "smoke"
    assert asked(draft) == ["cluster", "site", "gpus", "training", "review"]


def test_going_to_another_cluster_and_back_loses_nothing() -> None:
    draft = choices.put(dev(), "training.learning_rate", "3e-4")
    draft = choices.load_cluster(choices.put(draft, "cluster", "local"), "local")
    draft = choices.load_cluster(choices.put(draft, "cluster", "dev"), "dev")
    assert value(draft, "training.learning_rate") == "0.0003"
    assert source(draft, "training.learning_rate") == "you"


def test_planning_alone_asks_for_hardware() -> None:
    draft = choices.start(cluster=PLAN_ONLY)
    assert [p.key for p in choices.problems(draft)] == ["resources.gpu"]
    draft = choices.put(draft, "resources.gpu", "p6-b200")
    assert choices.problems(draft) == []
    assert choices.plan_request(choices.put(draft, "resources.gpus", "64")).node.id == "p6-b200"
    assert "site" not in asked(draft)
    assert "plan" in asked(draft)


def test_the_model_must_be_known_while_typing() -> None:
    draft = dev()
    assert choices.check(draft, "model.id", "gpt-175b") is None
    assert "gpt-175b" in (choices.check(draft, "model.id", "gpt-175") or "")
    with pytest.raises(UserError):
        choices.put(draft, "model.id", "nonsense-9000")


def test_sixty_three_gpus() -> None:
    words = choices.check(dev(), "resources.gpus", "63") or ""
    assert "56" in words
    assert "64" in words


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("resources.gpus", "0", "at least 1"),
        ("resources.gpus", "many", "whole number"),
        ("resources.gpus", "4096", "64"),
        ("resources.partition", "deb", "dev"),
        ("training.learning_rate", "fast", "a number"),
        ("training.dropout", "1.5", "below 1"),
        ("training.precision", "bf61", "bf16"),
        ("recipe", "smokey", "smoke"),
        ("cluster", "devv", "dev"),
        ("site.time_limit", "two hours", "notation"),
        ("site.run_root", "relative", "absolute"),
        ("site.node", "p6-b20", "p6-b200"),
        ("model.id", "", "required"),
        ("no.such", "x", "question"),
        ("site.environment.kind", "docker", "environment.kind"),
    ],
)
def test_bad_answers_are_refused_with_the_cure(key: str, text: str, words: str) -> None:
    draft = dev()
    found = choices.check(draft, key, text)
    assert found is not None
    assert words in found
    with pytest.raises(UserError):
        choices.put(draft, key, text)


def test_iterations_and_tokens_replace_each_other() -> None:
    draft = choices.put(dev(), "training.iterations", "100")
    draft = choices.put(draft, "training.tokens", "300B")
    assert (draft.profile.training.iterations, draft.profile.training.tokens) == (None, 3e11)
    assert value(draft, "training.iterations") == ""
    draft = choices.put(draft, "training.iterations", "7")
    assert (draft.profile.training.iterations, draft.profile.training.tokens) == (7, None)


def test_emptying_a_field_brings_its_default_back() -> None:
    draft = choices.put(choices.put(dev(), "resources.gpus", "64"), "resources.gpus", "")
    assert value(draft, "resources.gpus") == "8"


def test_a_partition_of_other_gpus_changes_what_is_planned_for() -> None:
    draft = choices.put(dev(), "resources.partition", "long")
    assert choices.plan_request(draft).node.gpu.id == "b200"
    draft = replace(draft, profile=replace(draft.profile, resources=Resources(partition="long", gpu="h100")))
    assert choices.plan_request(draft).node.gpu.id == "h100"


def test_training_on_a_partition_without_gpus_is_a_problem() -> None:
    draft = choices.put(dev(), "resources.partition", "cpu")
    draft = choices.put(draft, "recipe", "megatron-deepspeed")
    assert any("no GPUs" in p.text for p in choices.problems(draft))
    assert choices.put(draft, "recipe", "smoke").recipe == "smoke"


def test_every_shown_value_is_accepted_as_an_answer() -> None:
    """What a form shows must be legal to type: Enter everywhere never fails."""
    for draft in (local(), dev(), planning()):
        for step in choices.steps(draft):
            if step.skip:
                continue
            for f in choices.fields(draft, step.id):
                if f.required and not f.value:
                    continue
                assert choices.check(draft, f.key, f.value) is None, (f.key, f.value)


def test_every_option_is_accepted_as_an_answer() -> None:
    for draft in (local(), dev(), planning()):
        for step in choices.steps(draft):
            for f in choices.fields(draft, step.id) if not step.skip else ():
                for option in f.options[:40]:
                    assert choices.check(draft, f.key, option.value) is None, (f.key, option)


def test_fields_are_complete() -> None:
    for draft in (local(), dev(), planning()):
        for step in choices.SPECS:
            for f in choices.fields(draft, step):
                assert f.label, f.key
                assert f.help.endswith("."), f.key
                assert f.kind in ("text", "int", "float", "choice", "bool", "path"), f.key


def test_the_summary_is_cheap_and_says_what_it_implies() -> None:
    parts = dict(choices.summary(choices.put(dev(), "resources.gpus", "64")).parts)
    assert parts["size"] == "64 GPUs on 8 nodes of dgx-b200"
    assert parts["batch"] == "0.524M tokens (256 x 2048)"
    assert "looking" in parts["layout"]


def test_choosing_a_plan() -> None:
    draft = choices.put(planning(), "resources.gpus", "16")
    result = planner.search(choices.plan_request(draft, top=3))
    first, third = choices.choose(draft, result.plans[0]), choices.choose(draft, result.plans[2])
    assert choices.profile_of(first).layout.fixed == {}, "the planner may improve its own first choice"
    assert third.profile.layout.fixed == {}, "going back offers every layout again"
    assert choices.profile_of(third).layout.fixed["tensor_parallel"] == result.plans[2].layout.tensor_parallel
    saved = replace(third, profile=choices.profile_of(third))
    again = planner.search(choices.plan_request(saved, top=1))
    assert again.plans[0].layout == result.plans[2].layout
    assert dict(choices.summary(third).parts)["takes"].endswith("GPU-hours")
    assert choices.put(third, "model.id", "gpt-2.7b").plan is None, "another model makes the plan void"


def test_a_profile_saved_from_a_draft_starts_the_same_draft() -> None:
    draft = choices.put(choices.put(dev(), "training.learning_rate", "2e-4"), "resources.gpus", "16")
    store.save(choices.profile_of(draft), "mine")
    layered = store.load_layered("mine")
    again = choices.load_cluster(choices.start(layered.profile, base="mine", origins=layered.origins), "dev")
    assert replace(again.profile, name="") == draft.profile
    assert source(again, "training.learning_rate") == "profile mine"


def test_a_given_profile_keeps_its_job() -> None:
    draft = choices.load_cluster(choices.start(Profile(recipe="smoke")), "dev")
    assert draft.recipe == "smoke"
    draft = choices.load_cluster(choices.start(Profile(), cluster="local"), "local")
    assert draft.recipe == "megatron-deepspeed", "what a profile says is not changed behind the user's back"
    assert any(p.key == "recipe" for p in choices.problems(draft))


def test_a_draft_from_a_run() -> None:
    from gpt_tune.ledger import RunRecord
    from gpt_tune.profiles.build import to_dict
    from gpt_tune.toml import dump

    old = Profile(
        name="old", recipe="smoke", cluster="dev", site=Site(cluster="dev", run_root="/x", account="a")
    )
    record = RunRecord(
        run_id="r1", token="t", cluster="dev", scheduler="slurm", name="old", recipe="smoke", run_dir="/x/r1",
        script="/x/r1/job", created_at="2026-11-30T00:00:00Z", profile=dump(to_dict(old)),
    )  # fmt: skip
    draft = choices.load_cluster(choices.from_run(record), "dev")
    assert (draft.recipe, draft.base, draft.profile.site.account) == ("smoke", "old", "a")
    sites.save(Site(cluster="dev", scheduler="slurm", run_root="/y", account="b"))
    draft = choices.load_cluster(choices.from_run(record), "dev")
    assert (draft.site.account, draft.profile.site) == ("b", Site())


def test_the_trainer_is_found_where_people_put_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draft = choices.put(dev(), "site.run_root", str(tmp_path / "runs"))
    assert [p.key for p in choices.problems(draft)] == ["trainer.path"]
    (tmp_path / "Megatron-DeepSpeed").mkdir()
    assert [p.key for p in choices.problems(draft)] == ["trainer.path"], (
        "a folder of that name proves nothing"
    )
    (tmp_path / "Megatron-DeepSpeed" / "pretrain_gpt.py").touch()
    assert value(draft, "trainer.path") == str(tmp_path / "Megatron-DeepSpeed")
    assert choices.problems(draft) == []
    monkeypatch.setenv("MEGATRON_PATH", "/named")
    assert value(draft, "trainer.path") == "/named"
    assert value(choices.put(draft, "trainer.path", "/mine"), "trainer.path") == "/mine"


def test_what_the_job_itself_cannot_run_is_a_problem_at_its_question() -> None:
    draft = choices.put(local(), "recipe", "custom")
    (problem,) = choices.problems(draft)
    assert (problem.step, problem.key) == ("training", "custom.script")
    assert choices.problems(choices.put(draft, "custom.command", "echo hello")) == []


def test_a_silent_slurm_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "available", lambda: ["local"])
    monkeypatch.setattr(clusters, "silent", lambda: {"dev": SchedulerError("dev does not answer.")})
    draft = choices.start()
    assert "dev does not answer" in draft.trouble
    assert draft.profile.cluster == "local"


def test_an_unreachable_cluster_stays_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(name: str | None = None) -> Cluster:
        raise SchedulerError("slurmctld is down")

    monkeypatch.setattr(clusters, "discover", gone)
    with pytest.raises(SchedulerError):
        choices.load_cluster(choices.start(), "dev")


def test_a_profile_for_a_cluster_that_is_not_here() -> None:
    draft = choices.start(Profile(cluster="elsewhere"))
    assert choices.needs_cluster(draft) == "elsewhere"


@pytest.mark.parametrize("number", ["257", "1_000_000", "99999999999999999999999"])
def test_no_more_processes_than_this_machine_bears(number: str) -> None:
    assert choices.check(local(), "resources.gpus", "256") is None
    told = choices.check(local(), "resources.gpus", number)
    assert "no GPUs and 64 CPUs" in str(told) or "at most 18 digits" in str(told)
    kept = replace(local(), profile=replace(local().profile, resources=Resources(gpus=10**6)))
    assert [(p.step, p.key) for p in choices.problems(kept)] == [("gpus", "resources.gpus")]


def test_a_profiles_node_type_is_the_answer_and_another_choice_takes_its_place(home: Path) -> None:
    profile = replace(Profile(), resources=Resources(gpus=64, gpus_per_node=8, node="p6-b200"))
    draft = choices.start(profile, choices.PLAN_ONLY, base="aws", available=())
    shown = {f.key: f for f in choices.fields(draft, "gpus")}
    assert (shown["resources.gpu"].value, shown["resources.gpu"].source) == ("p6-b200", "profile aws")
    assert choices.check(draft, "resources.gpu", shown["resources.gpu"].value) is None
    other = choices.put(draft, "resources.gpu", "alibaba-gpu-hpn")
    assert choices.plan_request(other).node.id == "alibaba-gpu-hpn"
    assert choices.plan_request(other).node.gpus_per_node == 16
    assert {f.key: f.value for f in choices.fields(other, "gpus")}["resources.gpu"] == "alibaba-gpu-hpn"


def test_the_check_carries_no_model_chosen_for_another_job() -> None:
    draft = choices.put(dev(), "model.id", "qwen3-32b")
    assert choices.profile_of(draft).model.id == "qwen3-32b"
    check = choices.put(draft, "recipe", "smoke")
    assert choices.profile_of(check).model == Profile().model
    assert not [s for s in choices.settings_of(check) if s.key.startswith("model.")]
    again = choices.put(check, "recipe", "megatron-deepspeed")
    assert choices.profile_of(again).model.id == "qwen3-32b", "the draft itself loses nothing"


def test_what_was_chosen_for_another_cluster_is_left_out_with_a_sentence() -> None:
    draft = choices.put(choices.put(dev(), "resources.partition", "long"), "resources.gpus", "16")
    moved = choices.load_cluster(choices.put(draft, "cluster", "local"), "local")
    assert (moved.profile.resources.partition, moved.profile.resources.gpus) == ("", None)
    assert "dev" in moved.left
    assert "16 GPUs" in moved.left
    assert "partition long" in moved.left
    assert choices.put(draft, "cluster", "dev").profile.resources.gpus == 16, "the same cluster keeps all"


def test_a_run_of_another_cluster_brings_no_partition_and_no_site() -> None:
    profile = Profile(
        cluster="gone",
        recipe="smoke",
        resources=Resources(gpus=8, partition="dev", node="p6-b200"),
        site=Site(partition="dev", run_root="/shared/runs"),
    )
    draft = choices.start(profile, base="earlier", origins={"recipe": "run earlier"})
    moved = choices.load_cluster(choices.put(draft, "cluster", "local"), "local")
    assert moved.profile.resources == Resources()
    assert moved.profile.site == Site()
    assert all(word in moved.left for word in ("gone", "8 GPUs", "partition dev", "p6-b200"))


def test_settings_for_every_cluster_stay_on_another() -> None:
    profile = Profile(resources=Resources(gpus=4))
    draft = choices.start(profile, cluster="dev", origins={"resources.gpus": "your settings"})
    moved = choices.put(draft, "cluster", "local")
    assert moved.profile.resources.gpus == 4
    assert moved.left == ""
