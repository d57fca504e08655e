"""The pytest layer, registered by the `pytest11` entry point: options and hooks, nothing else.

It is loaded into every pytest run of an installation, so it imports nothing heavy until claims are asked for, adds
only `--impl` and options that begin with `--claims`, and collects only this package's own folder.

Exit codes are pytest's: 0 every claim that the implementation provides is kept, or is a known failure; 1 a claim is
broken, vacuous, or unexpectedly kept, or the results say something else than pytest reports; 4 an option or the
implementation cannot be used; 5 nothing was tested; 6 no claim is broken, and the core of the implementation was not
tested (--no-claims-strict: 0).
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conformance.session import ClaimsSession

PACKAGE = Path(__file__).parent
_SESSION = pytest.StashKey["ClaimsSession"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance", "claims of Transformer tutorials (pytest conformance/)")
    group.addoption(
        "--impl",
        metavar="SPEC",
        default=None,
        help="implementation to test: minigrad (default), minigrad:reference, torch, reference, path/to/file.py:Class, "
        "or package.module:Class, where Class is an nn.Module (Class@role where its names do not tell its role), a "
        "function or classmethod that makes one, an expression such as GPT(Config(n_layer=2)), an instance, or has a "
        "method build(role, config); path/to/file.py alone tests each of these in the file",
    )
    group.addoption(
        "--claims",
        metavar="SELECT",
        default=None,
        help="run only these claims: slugs, patterns (*causal*), topics, documents (002), rows (002-017) "
        "or origins (paper), separated by commas",
    )
    group.addoption(
        "--claims-input",
        metavar="SHAPES",
        default=None,
        help="what forward takes, where it cannot be guessed: 2x16:int (token ids), 2x16x64 (numbers), or by name "
        "idx=2x16:int,mask=2x16; the batch first, then the positions",
    )
    group.addoption(
        "--claims-weights",
        metavar="FILE",
        default=None,
        help="test an nn.Module with the weights of this state dict (safetensors or torch.save)",
    )
    group.addoption("--claims-device", metavar="DEVICE", default=None, help="run an nn.Module on cpu (default) or cuda")
    group.addoption(
        "--claims-reference",
        metavar="SPEC",
        default=None,
        help="a second nn.Module of the same parameters: say which module is the first whose output differs",
    )
    group.addoption("--claims-list", action="store_true", help="list the selected claims and exit")
    group.addoption(
        "--claims-budget",
        choices=("quick", "default", "deep"),
        default=None,
        help="how many examples each claim explores: a third, its own number, or ten times that",
    )
    group.addoption(
        "--claims-explore",
        metavar="SEED",
        type=int,
        default=0,
        help="explore other examples than the usual ones; the same seed gives the same examples",
    )
    group.addoption(
        "--claims-since",
        metavar="VERSION",
        default=None,
        help="leave out claims that came after this version (0.1.0), so that a new release asks for nothing new",
    )
    group.addoption(
        "--claims-known",
        metavar="FILE",
        default=None,
        help="TOML file of known failures ([[known]] tables with claim, subject, reason and expires); strict: an entry "
        "that passes, or that has expired, fails",
    )
    group.addoption(
        "--claims-sandbox",
        action="store_true",
        default=False,
        help="run the implementation in a sandbox: no network, a read-only file system, no other process in sight "
        "(Linux; stops where the sandbox does not hold)",
    )
    group.addoption(
        "--claims-strict",
        action="store_true",
        default=True,
        help="end with exit code 6 when the core of the implementation was not tested (the default)",
    )
    group.addoption(
        "--no-claims-strict",
        action="store_false",
        dest="claims_strict",
        help="say what was not tested, and end with 0 all the same",
    )
    group.addoption(
        "--claims-report",
        metavar="FILE",
        action="append",
        default=[],
        help="write the results to FILE.html (one self-contained page), FILE.json, FILE.sarif (for code scanning), "
        "FILE.md (a summary), or FILE.svg (a badge); may be given several times",
    )
    group.addoption(
        "--claims-adapter-out",
        metavar="FILE",
        default=None,
        help="write what was inferred of an nn.Module to FILE.py, to correct and complete (--impl FILE.py:Adapter)",
    )


def _session(config: pytest.Config) -> ClaimsSession:
    """The run's state, made on first use. Raises UsageError when an option is wrong."""
    if _SESSION not in config.stash:
        from conformance.session import ClaimsSession

        config.stash[_SESSION] = ClaimsSession(config)
    return config.stash[_SESSION]


def _asked_for(config: pytest.Config) -> bool:
    """Whether the command line shows that claims are wanted: one of our options, or this folder."""
    option = config.option
    given = (option.impl, option.claims, option.claims_known, option.claims_report, option.claims_list)
    return any(given) or any(_is_package(config, argument) for argument in config.args)


def _is_package(config: pytest.Config, argument: str) -> bool:
    return (config.option.pyargs and argument == "conformance") or (
        (config.invocation_params.dir / argument).resolve() == PACKAGE
    )


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


class _Listener:
    """Hands every claim's report to the session: in the one process, or from the workers of pytest-xdist."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.nodeid.startswith(f"{PACKAGE.name}::") and not _is_worker(self.config):
            _session(self.config).add(report)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Listener(config), "conformance-listener")
    if not _is_worker(config) and _asked_for(config):
        _session(config)


def pytest_cmdline_main(config: pytest.Config) -> int | None:
    if not config.option.claims_list:
        return None
    print(_session(config).asked.listing())
    return 0


def pytest_sessionstart(session: pytest.Session) -> None:
    config = session.config
    if not _asked_for(config):
        return
    _session(config).find()
    distributed = getattr(config.option, "dist", "no") != "no" and not _is_worker(config)
    if distributed and not config.option.collectonly:
        # The workers load the implementation too, but only here can its failure end the run with one sentence.
        _session(config).try_loading()


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if path != PACKAGE:
        return None
    from conformance.items import ClaimsFolder

    return ClaimsFolder.from_parent(parent, path=path, nodeid=path.name, session_of_claims=_session(parent.config))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the claims of a subject together, whatever order another plugin gives: each change loads a subject anew."""
    if _SESSION in config.stash and config.stash[_SESSION].asked.is_whole_file:
        order = config.stash[_SESSION].subjects
        items.sort(key=lambda item: order.index(item.subject) if hasattr(item, "subject") else -1)


def pytest_collection_finish(session: pytest.Session) -> None:
    claims = [item for item in session.items if hasattr(item, "subject")]
    if claims and not session.config.option.collectonly:
        _session(session.config).start(claims)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    result = getattr(item, "claim_result", None)
    if report.when == "call" and result is not None:
        report.claim = result.to_json()  # type: ignore[attr-defined]
    return report


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
    """A note passes, under its own name."""
    if report.when == "call" and getattr(report, "claim", {}).get("verdict") == "NOTE" and report.passed:
        return "passed", "n", ("NOTE", {"yellow": True})
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if _SESSION in session.config.stash and not _is_worker(session.config):
        _session(session.config).finish(session)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if _SESSION in config.stash:
        _session(config).write_summary(terminalreporter)


def pytest_unconfigure(config: pytest.Config) -> None:
    if _SESSION in config.stash:
        _session(config).close()
