"""``flamegate doctor --ci``: our own files have no trap, and each trap is found at its line."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.commands.asked import Captured, ask, find_traps, read_workflow

DOCS = Path(__file__).parents[2] / "docs"
MEASURE, JUDGE = "flamegate-measure.yml", "flamegate-judge.yml"
SINGLE = "check.yml"
ONE_JOB = """\
name: check
on:
  pull_request:
  merge_group:
permissions:
  contents: read
jobs:
  check:
    runs-on: ubuntu-24.04
    steps:
      - uses: actions/checkout@v4
        with:
          fetch-depth: 0
      - run: flamegate check --base "$BASE"
"""
PRIVILEGED = """\
on: [pull_request_target]
jobs:
  label:
    env:
      REF: ${{ github.event.pull_request.head.sha }}
    steps:
      - uses: actions/checkout@v4
"""


def write_single(root: Path, text: str) -> Path:
    """Write the only workflow of a repository; return its path."""
    path = root / ".github/workflows" / SINGLE
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a directory with both workflows of the documentation."""
    workflows = tmp_path / ".github/workflows"
    workflows.mkdir(parents=True)
    for name in (MEASURE, JUDGE):
        (workflows / name).write_text(read_workflow("github", name))
    return tmp_path


def test_the_documented_files_have_no_trap(repository: Path, capsys: Captured) -> None:
    assert ask("doctor", "--ci", str(repository)) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("no trap in .github/workflows/flamegate-judge.yml, ")
    (repository / ".gitlab-ci.yml").write_text(read_workflow("gitlab", "flamegate.gitlab-ci.yml"))
    assert find_traps(repository, capsys) == (0, [])


STEP = "      - name: Judge\n"
CHECK = "        run: flamegate check"


def before_judging(script: str, at: str, code: str) -> tuple[str, str, str, str, str]:
    """Return the trap of a step that runs ``script`` before the one that judges."""
    return JUDGE, STEP, f"      - run: {script}\n{STEP}", at, code


TRAPS = [
    # file, text of it, replacement, text of the reported line, code
    (MEASURE, "  merge_group:\n", "", "pull_request:", "E_CI_SKIPPED"),
    (MEASURE, "  pull_request:\n", "  pull_request:\n    paths: [a]\n", "paths", "E_CI_SKIPPED"),
    (MEASURE, "  pull_request:\n", "  pull_request: {paths-ignore: [a]}\n", "p", "E_CI_SKIPPED"),
    (JUDGE, "    types: [completed]\n", "    branches: [main]\n", "branches", "E_CI_SKIPPED"),
    (JUDGE, "  judge:\n", "  judge:\n    if: github.actor != 'bot'\n", "actor", "E_CI_SKIPPED"),
    (JUDGE, "  judge:\n", "  judge:\n    needs: other\n", "needs", "E_CI_SKIPPED"),
    (JUDGE, "        id: judge\n", "        if: env.NUMBER\n", "if: env", "E_CI_SKIPPED"),
    (JUDGE, "        if: always()\n", "", "Set the status", "E_CI_SKIPPED"),
    (JUDGE, "        id: judge\n", "        continue-on-error: true\n", "on-error", "E_CI_IGNORED"),
    (JUDGE, "  judge:\n", "  judge:\n    continue-on-error: true\n", "on-error", "E_CI_IGNORED"),
    (MEASURE, "  contents: read\n", "  statuses: write\n", "statuses", "E_CI_RIGHTS"),
    (MEASURE, "permissions:\n  contents: read\n", "permissions: write-all\n", "all", "E_CI_RIGHTS"),
    (MEASURE, CHECK, f"{CHECK} ${{{{ secrets.KEY }}}}", "secrets", "E_CI_RIGHTS"),
    (MEASURE, "          fetch-depth: 0\n", "", "checkout", "E_CI_SHALLOW"),
    (MEASURE, "upload-artifact@v6", "upload-artifact@main", "upload", "E_CI_NOT_PINNED"),
    (MEASURE, "/flamegate@v1.0.0", "/pytest-flamegate@main", "@main", "E_CI_NOT_PINNED"),
    (MEASURE, "host.example/", "HOST/PATH/", "HOST", "E_CI_NOT_PINNED"),
    (
        MEASURE,
        "      - name: Measure\n",
        "      - run: |\n          a \\\n           b\n          x --flamegate-update\n"
        "      - name: Measure\n",
        "-update",
        "E_CI_UPDATE",
    ),
    before_judging('git checkout "$HEAD"', "git checkout", "E_CI_HEAD_CODE"),
    (JUDGE, "          path: ${{ runner.temp }}/runs\n", "", "download", "E_CI_HEAD_CODE"),
    before_judging('bash "${RUNNER_TEMP}/runs/make.sh"', "make.sh", "E_CI_HEAD_CODE"),
    before_judging(
        "make\n        working-directory: ${{ runner.temp }}/runs", "working", "E_CI_HEAD_CODE"
    ),
    before_judging("gh run download 1", "gh run", "E_CI_HEAD_CODE"),
    before_judging("gh run download 1 -D out && out/run", "gh run", "E_CI_HEAD_CODE"),
    before_judging("echo ${{ github.event.workflow_run.head_branch }}", "echo", "E_CI_HEAD_CODE"),
    before_judging("cat ${{ runner.temp }}/runs/base >> $GITHUB_ENV", "cat", "E_CI_HEAD_CODE"),
]


@pytest.mark.parametrize(("name", "old", "new", "at", "code"), TRAPS)
def test_a_trap_in_two_workflows_is_found(
    repository: Path, capsys: Captured, name: str, old: str, new: str, at: str, code: str
) -> None:
    path = repository / ".github/workflows" / name
    path.write_text(path.read_text().replace(old, new, 1))
    exit_code, traps = find_traps(repository, capsys)
    assert (exit_code, [each for each, _ in traps]) == (2, [code])
    reported, _, line = traps[0][1].rpartition(":")
    assert reported == f".github/workflows/{name}"
    assert at in path.read_text().splitlines()[int(line) - 1]


RUN = '      - run: flamegate check --base "$BASE"\n'


def block(*lines: str) -> str:
    """Return a step with a script of these lines."""
    return "".join(["      - run: |\n", *(f"          {line}\n" for line in lines)])


IGNORED = [
    block("if flamegate check; then echo; fi"),
    block("if", "flamegate check", "then echo; fi"),
    block("while", "flamegate check", "do break; done"),
    block("f() {", "flamegate check", "}", "f || true"),
    block("cat <<END", "flamegate check", "END"),
    block("flamegate check", "echo") + "        shell: bash {0}\n",
    block("set +o errexit", "flamegate check", "echo"),
    block("flamegate check && echo", "echo"),
    block("true ||", "flamegate check"),
    block("! flamegate check"),
    block('echo "$(flamegate check)"'),
    block("flamegate check & wait"),
    block("flamegate check | tee log; exit ${PIPESTATUS[0]}"),
    block("bash -c 'flamegate check || true'"),
    block("trap 'exit 0' EXIT", "flamegate check"),
    block("test -e big || exit 0", "flamegate check"),
    block("flamegate check --base x --hel"),
    block("flamegate check -h"),
    block("exec true", "flamegate check"),
    block("test -e big && exec ./other >log", "flamegate check"),
    block("kill $$", "flamegate check"),
    block("shopt -uo errexit", "flamegate check", "echo"),
    block("flamegate() { true; }", "flamegate check"),
    block("function flamegate { true; }", "flamegate check"),
    block("alias -- a=b flamegate=true", "flamegate check"),
]
"""Steps whose check cannot be seen to fail the job."""


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ('"$BASE"', '"$BASE" || true', "E_CI_IGNORED"),
        ('"$BASE"', '"$BASE" | tee log', "E_CI_IGNORED"),
        ("      - run: f", "      - run: |\n          set +e\n          f", "E_CI_IGNORED"),
        ("          fetch-depth: 0\n", "          fetch-depth: 1\n", "E_CI_SHALLOW"),
        ("permissions:\n  contents: read\n", "", "E_CI_RIGHTS"),
        ("    steps:\n", "    if: ${{ !cancelled() }}\n    steps:\n", "E_CI_SKIPPED"),
        ("flamegate check", "pytest --flamegate --flamegate-against", "E_CI_NO_CHECK"),
        (RUN, RUN + "        if: always() && github.actor != 'x'\n", "E_CI_SKIPPED"),
        (RUN, block("echo 'see flamegate check'"), "E_CI_NO_CHECK"),
        *((RUN, step, "E_CI_IGNORED") for step in IGNORED),
    ],
)
def test_a_trap_in_one_job_is_found(
    tmp_path: Path, capsys: Captured, old: str, new: str, code: str
) -> None:
    assert old in ONE_JOB
    write_single(tmp_path, ONE_JOB.replace(old, new, 1))
    exit_code, traps = find_traps(tmp_path, capsys)
    assert (exit_code, {each for each, _ in traps}) == (2, {code})


@pytest.mark.parametrize(
    "step",
    [
        block("set -x +v", "pip install x || exit 1", 'A="b c" uv run -q flamegate check 2>&1'),
        block("if cat a; then echo; fi", "echo done", '"$VENV/bin/flamegate" check \\', "--base x"),
        block("set +e", "cat a", "set -eu", "python3 -m pytest_flamegate check --base b"),
        block("set -e", "flamegate check") + "        shell: bash {0}\n",
        block("uv run --extra gpu --frozen flamegate check --base b"),
        block("(cd srv && exec ./server) &", "flamegate check"),
        block('sh -c "cd srv && exec ./server" &', "flamegate check"),
        block("exec ./server &", "flamegate check"),
        block("kill $(cat pid) ; echo $$", "flamegate check"),
        block("exec 2>&1", "exec  > log", "shopt -so pipefail", "kill $PID", "flamegate check"),
        "      - if: github.event.pull_request.head.repo.full_name != github.repository\n"
        "        uses: actions/checkout@v6.0.1-rc.1\n"
        "        with:\n          repository: o/models\n" + block("flamegate check --base b"),
        block("flamegate check --base ${{ github.base_ref || 'main' }}") + "        shell: bash\n",
        block("flamegate check", "echo 'flamegate check passed'")
        + "        shell: bash -leo pipefail {0}\n        if: success()\n",
    ],
)
def test_a_plain_command_is_no_trap(tmp_path: Path, capsys: Captured, step: str) -> None:
    write_single(tmp_path, ONE_JOB.replace(RUN, step))
    assert find_traps(tmp_path, capsys) == (0, [])


def test_the_job_that_calls_a_workflow_has_its_traps(tmp_path: Path, capsys: Captured) -> None:
    called = ONE_JOB.replace("pull_request:\n  merge_group", "workflow_call")
    workflows = write_single(tmp_path, called).parent
    caller = (
        "on:\n  pull_request:\n    paths: [a]\n  merge_group:\njobs:\n  all:\n"
        "    if: github.actor != 'bot'\n    uses: ./.github/workflows/check.yml\n"
        "    secrets: inherit\n"
    )
    (workflows / "all.yml").write_text(caller)
    assert find_traps(tmp_path, capsys) == (
        2,
        [
            ("E_CI_SKIPPED", ".github/workflows/all.yml:3"),
            ("E_CI_SKIPPED", ".github/workflows/all.yml:7"),
            ("E_CI_RIGHTS", ".github/workflows/all.yml:9"),
        ],
    )


@pytest.mark.parametrize(
    "step",
    [
        "      - run: gh pr checkout 3\n",
        "      - run: git fetch origin main && git switch --detach $REF\n",
        "      - run: git merge FETCH_HEAD\n",
        "      - run: |\n          git fetch origin pull/${{ github.event.number }}/head:pr\n"
        "          git checkout pr\n",
        "      - run: git pull origin pull/${{ github.event.number }}/merge\n",
        "      - run: echo ${{ github.event.pull_request.head.label }}\n",
        "      - run: echo '${{ toJSON(github.event.pull_request) }}'\n",
        "      - uses: actions/github-script@v8\n        with:\n"
        "          script: core.info('${{ github.event.pull_request.title }}')\n",
        "        with:\n          ref: ${{ env.REF }}\n",
        "        with:\n          ref: refs/pull/${{ github.event.number }}/merge\n",
    ],
)
def test_a_privileged_workflow_must_not_check_out_the_change(
    repository: Path, capsys: Captured, step: str
) -> None:
    other = repository / ".github/workflows/label.yml"
    other.write_text(PRIVILEGED)
    assert find_traps(repository, capsys) == (0, [])
    other.write_text(PRIVILEGED + step)
    code, traps = find_traps(repository, capsys)
    last = f".github/workflows/label.yml:{len((PRIVILEGED + step).splitlines())}"
    assert (code, traps) == (2, [("E_CI_HEAD_CODE", last)])


def test_hostile_files_are_reported(tmp_path: Path, capsys: Captured) -> None:
    workflows = write_single(tmp_path, ONE_JOB).parent
    letters = "abcdefghijklmnopqrst"
    laughs = "a: &a [x]\n" + "".join(
        f"{own}: &{own} [{', '.join([f'*{last}'] * 9)}]\n" for last, own in pairwise(letters)
    )
    for name, data in (
        ("deep.yml", b"[" * 100_000),
        ("laughs.yaml", laughs.encode()),
        ("aliases.yml", f"a: &a '{'x ' * 80_000}'\nb: [{'*a, ' * 20_000}]".encode()),
        ("broken.yml", b"on: [\n"),
        ("list.yml", b"- a\n"),
        ("text.yml", b"\xff"),
        ("large.yml", b"a: " + b"b" * (1 << 20)),
    ):
        (workflows / name).write_bytes(data)
    (workflows / "link.yml").symlink_to("/etc/passwd")
    code, traps = find_traps(tmp_path, capsys)
    assert code == 2
    assert {place.rpartition("/")[2].partition(":")[0] for _, place in traps} == {
        *("deep.yml", "broken.yml", "list.yml", "text.yml", "large.yml", "link.yml")
    }
    assert {each for each, _ in traps} == {"E_CI_NOT_READ"}


def test_without_files_or_pyyaml_the_remedy_is_named(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ask("doctor", "--ci", str(tmp_path)) == 2
    assert "flamegate init" in capsys.readouterr().err
    (tmp_path / ".gitlab-ci.yml").write_text("{}")
    assert find_traps(tmp_path, capsys) == (2, [("E_CI_NO_CHECK", ".gitlab-ci.yml")])
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert ask("doctor", "--ci", str(tmp_path)) == 5
    assert "pip install pyyaml" in capsys.readouterr().err
