"""The working plugin, woken by ``--flamegate``: collects workloads, gates them, reports."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_flamegate.child.embedded.workloads import ENGINE as EMBEDDED
from pytest_flamegate.child.embedded.workloads import embedded_workloads
from pytest_flamegate.config.marker import (
    embedded_arguments,
    is_kernel_benchmark,
    is_marked,
    takes_fixture,
)
from pytest_flamegate.config.marker_options import check_marker
from pytest_flamegate.config.settings import Settings
from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.core.paths import is_file, real_path
from pytest_flamegate.core.progress import LogProgress, Progress, TerminalProgress
from pytest_flamegate.engines.declare import FILE_NAME, find_file, read_file
from pytest_flamegate.pytest_.fixture import Gate
from pytest_flamegate.pytest_.items import EmbeddedWorkloads, WorkloadFile
from pytest_flamegate.pytest_.kernel_benchmarks import gate_benchmark
from pytest_flamegate.run.present import (
    DrawnRuns,
    ResultView,
    accepted_lines,
    append_step_summary,
    brick_lines,
    relative,
    report_results,
    require_writable,
    rows,
    view_of,
    workflow_commands,
    write_report,
)
from pytest_flamegate.run.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from pytest_flamegate.config.workload import Workload
    from pytest_flamegate.run.publish import Outcome


_RESULTS = pytest.StashKey[list[ResultView]]()
_GATED = pytest.StashKey[bool]()
_REFUSED = pytest.StashKey[str]()
_FAILED = "Failed: "


class Gatekeeper:
    """One pytest run under ``--flamegate``."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.results: list[ResultView] = []
        self.drawn = DrawnRuns()
        try:
            self.settings = Settings.from_pytest(config)
            self.file = self.settings.config or _named(config) or find_file(config.rootpath)
            below = self.settings.thresholds
            self.declared = read_file(self.file, below) if self.file is not None else ()
            if self.settings.report is not None and not self._is_worker:
                require_writable(self.settings.report)
        except FlamegateError as error:
            raise pytest.UsageError(str(error)) from None
        self.report_error: FlamegateError | None = None
        self.embedded = embedded_workloads(self.settings.root, self.settings.thresholds)
        asked = config.args_source is pytest.Config.ArgsSource.ARGS
        self.arguments = tuple(config.args) if asked else ()
        self.embedded_wanted = self._take_embedded_arguments()
        self._add_workload_file()

    @cached_property
    def session(self) -> Session:
        """The session that gates; made when the first workload runs."""
        return Session(self.settings, self._progress())

    def _progress(self) -> Progress:
        """Return a moving line on a terminal, else lines in a log or on a worker's stderr."""
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        capture = self.config.pluginmanager.get_plugin("capturemanager")

        def write(text: str) -> None:
            with capture.global_and_fixture_disabled() if capture else nullcontext():
                if reporter is None:
                    sys.stderr.write(text)
                    sys.stderr.flush()
                    return
                # Does something only if pytest has begun a line, and so once a workload.
                reporter.ensure_newline()
                reporter.write(text)
                reporter.flush()

        if self._is_worker:
            reporter = None  # a worker's reporter writes nowhere
            return LogProgress(write)
        if reporter is None:
            return Progress()
        return TerminalProgress(write) if reporter.isatty else LogProgress(write)

    @property
    def _is_worker(self) -> bool:
        """Whether this is an xdist worker, whose results travel to the controller."""
        return hasattr(self.config, "workerinput")

    # Collection

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> WorkloadFile | None:
        """Collect the workload file where the walk or an argument comes by it."""
        if self.file is None or not self.declared or not _same(file_path, self.file):
            return None
        collector = WorkloadFile.from_parent(parent, path=file_path)
        collector.gating = self
        return collector

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Put the embedded workloads behind everything else where nothing was declared."""
        report = yield
        if isinstance(collector, pytest.Session) and report.passed and self._embedded_due():
            embedded = EmbeddedWorkloads.from_parent(collector, name=EMBEDDED, nodeid=EMBEDDED)
            embedded.gating = self
            embedded.wanted = self.embedded_wanted
            report.result.append(embedded)
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Refuse markers that would silently do nothing."""
        for item in items:
            try:
                check_marker(item)
            except pytest.UsageError as error:
                if not self._is_worker:
                    raise
                # A worker that leaves here brings xdist down with a traceback.
                item.stash[_REFUSED] = str(error)

    # Running

    def gate_for(self, item: pytest.Item) -> Gate:
        """Return the fixture's value for ``item``."""
        return Gate(self, item)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Fail a test whose marker was refused where the run could not be."""
        item.stash[_GATED] = False
        if refused := item.stash.get(_REFUSED, None):
            pytest.fail(refused, pytrace=False)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Gate the workload a marker names on a test that does not take the fixture.

        A test that takes it and gates nothing fails: it would look gated and be not. What a
        test benchmarks is gated when the benchmark itself has passed.
        """
        gates = isinstance(item, pytest.Function) and is_marked(item)
        kernel = gates and is_kernel_benchmark(item)
        if gates and not kernel and not takes_fixture(item):
            self.gate_for(item).run()
        result = yield
        if kernel:
            assert isinstance(item, pytest.Function)
            gate_benchmark(self, item)
        if gates and not item.stash.get(_GATED, False):
            pytest.fail(
                "E_NOTHING_GATED: the test takes the fixture flamegate and gates nothing. "
                "Call flamegate.run(NAME) or flamegate.measure(...) in it.",
                pytrace=False,
            )
        return result

    def gate(
        self,
        item: pytest.Item,
        workload: Workload,
        call: Callable[[str, int], Iterable[Any]] | None = None,
    ) -> Outcome:
        """Measure and gate ``workload`` for ``item``; fail the test where the verdict fails."""
        __tracebackhide__ = True
        item.stash[_GATED] = True
        outcome = self.session.gate(workload, call)
        self.drawn.add(outcome)
        shown = view_of(outcome, item.nodeid, self.session.hints)
        item.stash.setdefault(_RESULTS, []).append(shown)
        item.user_properties.append(("flamegate_verdict", outcome.verdict.verdict))
        if outcome.fails:
            pytest.fail(shown.section, pytrace=False)
        return outcome

    # Reporting

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Hand what was gated on with the report: this is what travels under xdist."""
        report = yield
        crash = getattr(report.longrepr, "reprcrash", None)
        if crash is not None and crash.message.startswith(_FAILED) and is_marked(item):
            # The summary line begins with the verdict, not with the kind of exception.
            crash.message = crash.message.removeprefix(_FAILED)
        if shown := item.stash.get(_RESULTS, None):
            # Each phase hands on what it gated: a fixture of the user's may gate in setup.
            results = [one.as_data() if self._is_worker else one for one in shown]
            report.flamegate = results  # type: ignore[attr-defined]
            del item.stash[_RESULTS]
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect what was gated, from this process or from a worker."""
        if self._is_worker:
            return
        for one in getattr(report, "flamegate", ()):
            self.results.append(one if isinstance(one, ResultView) else ResultView.from_data(one))

    def pytest_report_header(self) -> list[str]:
        """Say what measures, and where."""
        if self.config.getoption("collectonly"):
            return []
        return [self.session.preamble(self.declared or self.embedded)]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the report; where it cannot be written the run fails."""
        path = self.settings.report
        if path is None or self._is_worker or self.config.getoption("collectonly"):
            return
        try:
            reported = report_results(self.results, self.drawn, self.session.hints)
            write_report(path, reported, self.settings)
        except FlamegateError as error:
            self.report_error = error
            if session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show all verdicts in one table, and tell the CI service in its own words."""
        if self.report_error is not None:
            terminalreporter.write_line(f"no report was written: {self.report_error}", red=True)
        if not self.results:
            return
        from pytest_flamegate.report.terminal import summary

        writer = self.config.get_terminal_writer()
        terminalreporter.section("flamegate")
        table = summary(
            rows(self.results),
            directory=relative(self.settings.directory / "latest", self.settings.root),
            accept=self._accept_command(),
            width=writer.fullwidth,
            colour=writer.hasmarkup,
        )
        if self.settings.bricks is not None:
            table += brick_lines(self.results, width=writer.fullwidth, colour=writer.hasmarkup)
        table += accepted_lines(self.results)
        terminalreporter.write_line("\n".join(table))
        if self.settings.report is not None and self.report_error is None:
            report = relative(self.settings.report, self.settings.root)
            terminalreporter.write_line(f"report: {report}")
        if os.environ.get("GITHUB_ACTIONS") == "true":
            for line in workflow_commands(self.results):
                terminalreporter.write_line(line)
            try:
                append_step_summary(self.results)
            except OSError as error:
                terminalreporter.write_line(f"GITHUB_STEP_SUMMARY cannot be written: {error}")

    def _accept_command(self) -> str | None:
        """Return how to accept these runs, where any of them waits for it."""
        waits = (one for one in self.results if one.verdict.verdict == "no_baseline")
        if self.settings.against is None and any(not one.accepted for one in waits):
            return self.session.hints.accept(*self.arguments)
        return None

    def pytest_unconfigure(self) -> None:
        """Leave nothing behind: neither after Ctrl-C nor after a failure."""
        if "session" not in self.__dict__:
            return
        try:
            self.session.close()
        except FlamegateError as error:
            # The verdicts stand; what stays is named, and swept by the next comparison.
            print(f"flamegate: {error}", file=sys.stderr)  # noqa: T201

    # What to collect

    def _embedded_due(self) -> bool:
        if self.embedded_wanted is not None:
            return True
        asked = self.config.args_source is pytest.Config.ArgsSource.ARGS
        return not self.declared and not asked

    def _take_embedded_arguments(self) -> frozenset[str] | None:
        """Take ``embedded::NAME`` out of the arguments: they name no path.

        None where no argument did; an empty set means all of them.
        """
        taken = embedded_arguments(self.config.args, self.config.invocation_params.dir)
        if not taken:
            return None
        known = {workload.name for workload in self.embedded}
        names = {argument.partition("::")[2] for argument in taken} - {""}
        if unknown := names - known:
            raise pytest.UsageError(
                f"E_UNKNOWN_WORKLOAD: there is no embedded workload {sorted(unknown)[0]!r}. "
                f"Known: {', '.join(sorted(known))}."
            )
        self.config.args[:] = [a for a in self.config.args if a not in taken]
        return frozenset(names)

    def _add_workload_file(self) -> None:
        """Collect the workload file even where ``testpaths`` lead past it."""
        if self.file is None or not self.declared:
            return
        if self.config.args_source is pytest.Config.ArgsSource.ARGS:
            return
        places = [Path(self.config.invocation_params.dir, arg) for arg in self.config.args]
        if not any(real_path(self.file).is_relative_to(real_path(place)) for place in places):
            self.config.args.append(str(self.file))


def _named(config: pytest.Config) -> Path | None:
    """Return the workload file that an argument names, wherever it lies."""
    paths = (
        Path(config.invocation_params.dir, arg.partition("::")[0])
        for arg in config.args
        if FILE_NAME in arg
    )
    return next((path for path in paths if path.name == FILE_NAME and is_file(path)), None)


def _same(one: Path, other: Path) -> bool:
    """Whether two paths lead to one file, whatever links lie on the way."""
    return one.name == other.name and real_path(one) == real_path(other)
