"""Owns rules about what ties a script to one place or person: partitions, accounts, homes, buckets, secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpt_tune.lint import kinds
from gpt_tune.lint.documents import Document
from gpt_tune.lint.finding import Hit, Rule
from gpt_tune.lint.project import Project
from gpt_tune.lint.rules.slurm import long_name

_PLACEHOLDER = re.compile(
    r"(?i)^$|[<>{}$]|your|change|example|placeholder|todo|fixme|xxx|^\.{3}|_name$|^(?:partition|account|user|username|name)$"
)
_SITE_OPTIONS = {
    "partition": "fixed-partition", "account": "fixed-account", "nodelist": "fixed-nodes", "exclude": "fixed-nodes",
    "reservation": "fixed-account", "mail-user": "personal-mail",
}  # fmt: skip
_HOME = re.compile(
    r"(?<![\w.$}/])(/home/(?!\$|<|\{)[A-Za-z][\w.-]*|/Users/[A-Za-z][\w.-]*|/fsx/ubuntu|/data/home/[\w.-]+|"
    r"/(?:lustre|gpfs|scratch|work|nfs|p)[\w./-]{0,40}?/users?/[A-Za-z][\w.-]*)(?=[/\s\"':,]|$)"
)
_GENERIC_HOMES = frozenset(
    {"/home/user", "/home/username", "/home/you", "/home/me", "/Users/username", "/home/slurm"}
)
_BUCKET = re.compile(r"\b(?:s3|gs)://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?![\w$}{<.-])")
_BUCKET_VARIABLE = re.compile(
    r"(?i)\b\w*BUCKET\w*=[\"']?(?:\$\{\w+:-)?([a-z0-9][a-z0-9.-]{4,61}[a-z0-9])(?![\w${<.-])"
)
_PUBLIC_BUCKETS = re.compile(
    r"^(?:models\.huggingface\.co|aws-|amazon|sagemaker-|ec2-|efa-|commoncrawl|fast-ai|openneuro|gcp-|jax-|nvidia-|"
    r"pytorch|deepspeed|my-|mybucket|bucket|your|example|some-|test-bucket|allenai|mlcommons|t5-data)"
)
_ACCOUNT = re.compile(r"\b(\d{12})\.dkr\.ecr\.|\barn:aws[\w-]*:[\w-]*:[\w-]*:(\d{12}):")
# Accounts that publish images for everybody (AWS Deep Learning Containers, EKS add-ons), and documentation's own.
_PUBLIC_ACCOUNTS = frozenset(
    {
        "763104351884",
        "602401143452",
        "123456789012",
        "111122223333",
        "000000000000",
        "999999999999",
        "012345678901",
    }
    | {"444455556666", "111111111111", "222222222222", "658645717510"}
)
_SECRETS = (
    ("Hugging Face token", re.compile(r"\bhf_[A-Za-z0-9]{30,}\b")),
    ("AWS access key", re.compile(r"\b(?:AKIA|ASIA)(?!IOSFODNN7EXAMPLE)[0-9A-Z]{16}\b")),
    ("GitHub token", re.compile(r"\b(?:ghp|gho|ghs|github_pat)_[A-Za-z0-9_]{30,}\b")),
    ("Weights & Biases key", re.compile(r"WANDB_API_KEY\s*[=:]\s*[\"']?[0-9a-f]{40}\b")),
    ("NGC key", re.compile(r"\bnvapi-[A-Za-z0-9_-]{40,}\b")),
    ("private key", re.compile(r"-----BEGIN (?:RSA |OPENSSH |EC )?PRIVATE KEY-----")),
)


def _directives(rule: str, words: str) -> Rule:
    def check(document: Document, project: Project) -> Iterator[Hit]:
        for script in document.scripts if not document.rendered else ():
            for directive in script.directives:
                name = long_name(directive)
                if _SITE_OPTIONS.get(name) == rule and not _PLACEHOLDER.search(directive.value):
                    yield Hit(
                        directive.line,
                        f"--{name}={directive.value} is fixed in the script: {words}.",
                        f"Give it on the command line: sbatch --{name}=... (or "
                        f"SBATCH_{name.upper().replace('-', '_')}).",
                    )

    return Rule(
        rule, "info", (kinds.SHELL,), check, "Another user or cluster has to edit the script first.",
        "Give it on the command line.", "awsome-distributed-training reviews; sbatch manual, SBATCH_* variables",
    )  # fmt: skip


def _personal_path(document: Document, project: Project) -> Iterator[Hit]:
    seen: set[str] = set()
    for number, line in _code_lines(document):
        for match in _HOME.finditer(line):
            place = match.group(1)
            if place in seen or place in _GENERIC_HOMES:
                continue
            seen.add(place)
            yield Hit(
                number,
                f"{place} is one person's or one image's folder.",
                "Take it from a variable the caller sets.",
            )


def _code_lines(document: Document) -> Iterator[tuple[int, str]]:
    """Lines without comments; of a README only its code blocks."""
    if document.kind == kinds.MARKDOWN:
        for script in document.markdown.scripts:
            yield from enumerate(script.text.split("\n"), script.line)
        return
    for number, line in enumerate(document.lines, 1):
        bare = line.lstrip()
        if bare.startswith("#") and not bare.startswith("#SBATCH"):
            continue
        yield number, re.split(r"\s#\s", line)[0]


def _bucket(document: Document, project: Project) -> Iterator[Hit]:
    patterns = (_BUCKET,) if document.kind == kinds.PYTHON else (_BUCKET, _BUCKET_VARIABLE)
    seen: set[str] = set()
    for number, line in _code_lines(document):
        for match in (m for p in patterns for m in p.finditer(line)):
            name = match.group(1)
            if name in seen or _PUBLIC_BUCKETS.match(name) or _PLACEHOLDER.search(name):
                continue
            seen.add(name)
            yield Hit(
                number,
                f"The bucket {name} is fixed in the file.",
                "Take it from a variable without a default.",
            )


def _account(document: Document, project: Project) -> Iterator[Hit]:
    seen: set[str] = set()
    for number, line in _code_lines(document):
        for match in _ACCOUNT.finditer(line):
            account = match.group(1) or match.group(2)
            if account not in seen and account not in _PUBLIC_ACCOUNTS:
                seen.add(account)
                yield Hit(
                    number,
                    f"The AWS account {account} is fixed in the file.",
                    "Ask aws sts get-caller-identity.",
                )


def _secret(document: Document, project: Project) -> Iterator[Hit]:
    for number, line in enumerate(document.lines, 1):
        for words, pattern in _SECRETS:
            if pattern.search(line):
                yield Hit(number, f"A {words} stands in the file: whoever reads it can use it.")


_FILES = (kinds.SHELL, kinds.DOCKER, kinds.MAKE)
RULES = (
    _directives("fixed-partition", "other clusters have no partition of that name"),
    _directives("fixed-account", "it is billed there whoever submits"),
    _directives("fixed-nodes", "it waits for those very nodes"),
    _directives("personal-mail", "whoever submits, that person is told"),
    Rule(
        "personal-path", "info", (*_FILES, kinds.DEEPSPEED), _personal_path,
        "Nobody else has that folder.", "Take it from a variable.", "awsome-distributed-training reviews",
    ),
    Rule(
        "fixed-bucket", "warning", (*_FILES, kinds.PYTHON), _bucket,
        "Others write into it, or fail.", "Take it from a variable without a default.",
        "awsome-distributed-training reviews",
    ),
    Rule(
        "fixed-aws-account", "warning", _FILES, _account, "Others cannot pull from or write to it.",
        "Work it out from the caller's credentials.", "awsome-distributed-training reviews",
    ),
    Rule(
        "secret", "error", (*_FILES, kinds.MARKDOWN, kinds.PYTHON, kinds.DEEPSPEED, kinds.REQUIREMENTS), _secret,
        "It is in the history for ever.", "Revoke it, and read it from the environment.",
        "token formats of the named services",
    ),
)  # fmt: skip
