"""Lint on files that are not written yet."""

from __future__ import annotations

from gpt_tune.workflows import edits, file_findings
from gpt_tune.workflows.launch import Launch, with_edits


def test_generated_files_have_no_findings_and_an_edited_one_has_them_at_its_line(ready: Launch) -> None:
    assert file_findings.findings(ready.spec, ready.rendered) == ()
    script = next(f.content for f in ready.rendered.files if f.path == ready.rendered.script).decode()
    bad = (
        script.replace("#SBATCH --nodes=1", "#SBATCH --nodes=1\n#SBATCH --nodes=2", 1)
        + "export HF_TOKEN=hf_"
        + "a" * 30
        + "\n"
    )
    edit = edits.edited(ready.spec, ready.rendered, ready.rendered.script, bad)
    changed = with_edits(ready, {edit.path: edit})
    found = file_findings.findings(changed.spec, changed.rendered)
    secret = next(f for f in found if f.rule == "secret")
    assert secret.file == ready.rendered.script
    assert "HF_TOKEN" in bad.split("\n")[secret.line - 1]
    assert "error" in file_findings.words(found)
