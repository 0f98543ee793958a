"""GitHub's side of the required check: event files, a runner for workflow files, and its API.

``run_job`` runs the commands of a job with bash, as a runner does, in a clone of a local bare
repository. Its actions are those that our workflows use. The command ``gh`` is the one at the end
of this file; ``flamegate`` measures with fake processes, at the speed that ``toy.py`` states.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.workload.repositories import git

NAME = "owner/engine"
FLAMEGATE = """\
import re, sys
from pathlib import Path
import pytest
from pytest_flamegate.cli import main
from tests.run import fakes
rounds = re.search(r"rounds=(\\d+)", Path("toy.py").read_text())[1]
fakes.install(pytest.MonkeyPatch(), token_ns=fakes.TOKEN_NS * int(rounds) // 4000)
sys.exit(main())
"""
_PREPARES = re.compile(r"pip install|sudo ")
_TERM = re.compile(r"'[^']*'|\|\||&&|==|!=|!|\(|\)|[\w.-]+")
_WORDS = {"||": " or ", "&&": " and ", "!": " not ", "==": "==", "!=": "!=", "(": "(", ")": ")"}


@dataclass
class Host:
    """A repository at GitHub: ``bare``, its API's ``state``, and what its jobs uploaded."""

    root: Path
    attested: list[str] = field(default_factory=list)

    @property
    def bare(self) -> Path:
        return self.root / "upstream.git"

    @property
    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.root / "api.json").read_text())
        return found

    def write(self, **changed: Any) -> None:
        """Change what the API answers."""
        old = self.state if (self.root / "api.json").exists() else {}
        names = ("pulls", "statuses", "comments", "runs", "artifacts")
        state = {**{name: [] for name in names}, **old, **changed}
        (self.root / "api.json").write_text(json.dumps(state))

    def statuses(self, sha: str) -> list[str]:
        """Return each status that was set on a commit, in order: ``failure: the sentence``."""
        return [
            f"{each['state']}: {each['description']}"
            for each in self.state["statuses"]
            if each["sha"] == sha
        ]

    def find_artifact(self, name: str, run_id: int) -> Path | None:
        """Return the directory of an artifact, None if the run has none of that name."""
        for each in self.state["artifacts"]:
            if (each["name"], each["run"]) == (name, run_id):
                return Path(each["path"])
        return None

    def run_job(
        self, file: str, at: str, event: Mapping[str, Any], run_id: int, attempt: int = 1
    ) -> bool:
        """Run the only job of a workflow file as it is in the commit ``at``; return its success.

        ``event`` is the content of the event file; ``sha`` of it is the commit of the run.
        """
        workflow = yaml.safe_load(git(self.bare, "show", f"{at}:.github/workflows/{file}"))
        (job,) = workflow["jobs"].values()
        number = len(list(self.root.glob("job-*")))
        event = {**event, "attempt": attempt}
        job_run = JobRun(self, self.root / f"job-{number}", event, run_id, job.get("env", {}))
        for step in job["steps"]:
            job_run.run_step(step)
        return not job_run.has_failed


class JobRun:
    """One job on a runner of its own."""

    def __init__(
        self, host: Host, root: Path, event: Mapping[str, Any], run_id: int, env: Mapping[str, str]
    ) -> None:
        self.host, self.work, self.temp, self.programs = (
            host,
            root / "work",
            root / "temp",
            root / "bin",
        )
        self.event, self.run_id = event, run_id
        for path in (self.work, self.temp, self.programs):
            path.mkdir(parents=True)
        self.has_failed = False
        self.outcomes: dict[str, dict[str, Any]] = {}
        self.env: dict[str, str] = {}
        for name, program in (
            ("flamegate", f'exec "{sys.executable}" "{root}/flamegate.py" "$@"'),
            ("gh", f'exec "{sys.executable}" "{__file__}" "{host.root}/api.json" "$@"'),
        ):
            (self.programs / name).write_text(f"#!/bin/sh\n{program}\n")
            (self.programs / name).chmod(0o755)
        (root / "flamegate.py").write_text(FLAMEGATE)
        self.env |= {name: self.expand(value) for name, value in env.items()}

    def run_step(self, step: Mapping[str, Any]) -> None:
        condition = str(step.get("if", "success()"))
        if "always()" not in condition:
            condition = f"success() && ({condition})"
        if not self.evaluate(condition):
            self.outcomes[step.get("id", "")] = {"outcome": "skipped", "outputs": {}}
            return
        env = {name: self.expand(value) for name, value in step.get("env", {}).items()}
        uses, script = step.get("uses", "").partition("@")[0], step.get("run", "")
        outputs: dict[str, str] = {}
        if uses:
            given = {name: self.expand(value) for name, value in step.get("with", {}).items()}
            done = getattr(self, "_" + uses.partition("/")[2].replace("-", "_"))(given, outputs)
        else:
            done = bool(_PREPARES.search(script)) or self._run_script(script, env)
        outcome = "success" if done else "failure"
        self.outcomes[step.get("id", "")] = {"outcome": outcome, "outputs": outputs}
        self.has_failed |= not (done or step.get("continue-on-error", False))

    def expand(self, value: object) -> str:
        """Return a text with its expressions evaluated."""
        return re.sub(r"\$\{\{(.*?)\}\}", lambda at: str(self.evaluate(at[1])), str(value))

    def evaluate(self, expression: str) -> Any:
        text = expression.strip().removeprefix("${{").removesuffix("}}")
        words = [_WORDS.get(word) or self._quote(word) for word in _TERM.findall(text)]
        return eval("".join(words).replace("()", ""))

    def _quote(self, word: str) -> str:
        if word in ("always", "success"):
            return repr(word == "always" or not self.has_failed)
        if word[0] == "'":
            return word
        event = {**self.event, "repository": {"default_branch": "main", "private": False}}
        context: Any = {
            "github": {
                "event": event,
                "repository": NAME,
                "token": "t",
                "sha": event["sha"],
                "run_attempt": event.get("attempt"),
            },
            "env": self.env,
            "runner": {"temp": str(self.temp)},
            "steps": self.outcomes,
        }
        for key in word.split("."):
            context = context.get(key) if isinstance(context, dict) else None
        return repr("" if context is None else context)  # nothing equals an empty text

    def _run_script(self, script: str, env: Mapping[str, str]) -> bool:
        added = self.temp / "env"
        added.write_text("")
        variables = {
            **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
            **self.env,
            **env,
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_ENV": str(added),
            "GITHUB_STEP_SUMMARY": str(self.temp / "summary.md"),
            "GITHUB_SERVER_URL": "https://github.example",
            "GITHUB_RUN_ID": str(self.run_id),
            "RUNNER_TEMP": str(self.temp),
        }
        done = subprocess.run(["bash", "-e", "-c", script], cwd=self.work, env=variables)
        self.env |= dict(line.split("=", 1) for line in added.read_text().splitlines())
        return done.returncode == 0

    def _checkout(self, given: Mapping[str, str], _: object) -> bool:
        """Fetch all branches, as with ``fetch-depth: 0``, and check out the commit."""
        assert given["fetch-depth"] == "0"
        assert given["persist-credentials"] == "False"
        git(self.work, "init", "-q")
        git(self.work, "remote", "add", "origin", str(self.host.bare))
        git(self.work, "fetch", "-q", "origin", "+refs/heads/*:refs/remotes/origin/*")
        ref = given.get("ref") or self.event["sha"]
        git(self.work, "fetch", "-q", "origin", ref)
        git(self.work, "checkout", "-q", "--detach", ref)
        return True

    def _setup_python(self, *_: object) -> bool:
        return True

    def _upload_artifact(self, given: Mapping[str, str], _: object) -> bool:
        source = self.work / given["path"]
        if not source.exists():
            return given.get("if-no-files-found") != "error"
        kept = self.host.state["artifacts"]
        number = len(list(self.host.root.glob("artifact-*")))
        path = shutil.copytree(source, self.host.root / f"artifact-{number}")
        artifact = {"name": given["name"], "run": self.run_id, "path": str(path)}
        self.host.write(artifacts=[*kept, artifact])
        return True

    def _download_artifact(self, given: Mapping[str, str], _: object) -> bool:
        source = self.host.find_artifact(given["name"], int(given["run-id"]))
        if source is None:
            return False
        shutil.copytree(source, given["path"])
        return True

    def _attest(self, given: Mapping[str, str], outputs: dict[str, str]) -> bool:
        assert json.loads((self.work / given["predicate-path"]).read_text())["passed"]
        listed = (self.work / given["subject-checksums"]).read_text().splitlines()
        self.host.attested += [line.split("  ")[1] for line in listed]
        outputs["bundle-path"] = str(self.temp / "bundle.json")
        (self.temp / "bundle.json").write_text("\n".join(listed))
        return True


def _answer(path: str, method: str, fields: Mapping[str, str], state: dict[str, Any]) -> Any:
    """Return GitHub's answer to one request, and change ``state``."""
    kind, _, rest = path.removeprefix(f"repos/{NAME}/").partition("/")
    name, _, value = rest.partition("?")[2].partition("&")[0].partition("=")
    if kind.startswith("pulls?"):
        return state["pulls"]
    if kind == "actions":
        ours = {"head_branch": "main", "head_repository_id": 1, "repository_id": 1}
        artifacts = [each for each in state["artifacts"] if each["name"] == value]
        steps = [{"name": "Measure", "conclusion": "success"}]
        return {
            "artifacts": [{"workflow_run": {"id": each["run"], **ours}} for each in artifacts],
            "workflow_runs": [each for each in state["runs"] if each.get(name) == value],
            "jobs": [{"steps": steps}],
        }
    if kind == "statuses":
        state["statuses"].append({"sha": rest, **fields})
    elif method == "PATCH":
        found = next(each for each in state["comments"] if each["id"] == int(Path(path).name))
        found["body"] = fields["body"]
    elif fields:
        user = {"login": "github-actions[bot]"}
        state["comments"].append({"id": len(state["comments"]) + 1, "user": user, **fields})
    else:
        return state["comments"]
    return {}


def main(api: str, *words: str) -> int:
    """Be ``gh``: its commands ``api``, ``run download`` and ``attestation verify``."""
    arguments = list(words)
    state = json.loads(Path(api).read_text())
    if arguments[:2] == ["attestation", "verify"]:
        options = dict(zip(arguments[3::2], arguments[4::2], strict=True))
        assert options["--signer-workflow"].startswith(f"{NAME}/.github/workflows/")
        file = Path(arguments[2])
        name = f"{file.parent.name}/{file.name}"
        return 0 if name in Path(options["--bundle"]).read_text() else 1
    if arguments[:2] == ["run", "download"]:
        options = dict(zip(arguments[3::2], arguments[4::2], strict=True))
        wanted = (options["--name"], int(arguments[2]))
        found = [each for each in state["artifacts"] if (each["name"], each["run"]) == wanted]
        shutil.copytree(found[-1]["path"], options["--dir"])
        return 0
    fields, method, filtered, path = {}, "GET", ".", ""
    arguments = arguments[1:]
    while arguments:
        word = arguments.pop(0)
        if word in ("-f", "-F"):
            key, _, value = arguments.pop(0).partition("=")
            is_file = word == "-F" and value.startswith("@")
            fields[key] = Path(value[1:]).read_text() if is_file else value
        elif word == "-X":
            method = arguments.pop(0)
        elif word == "--jq":
            filtered = arguments.pop(0)
        elif word != "--paginate":
            path = word
    answer = json.dumps(_answer(path, method, fields, state))
    Path(api).write_text(json.dumps(state))
    return subprocess.run(["jq", "-r", filtered], input=answer, text=True).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
