"""Results in a database: SQLite, one row a submission, part and claim (`Store`).

What was found is kept by what it was found of: `outcomes` and `results` have the key of the submission's files,
versions, processor, budget and seed. A run names its submissions, and the key of each once it is graded. So the same
files are graded once, a row written twice is one row, and a run that was broken off goes on. The views `claims` and
`grades` join them for queries.
"""

from __future__ import annotations

import csv
import io
import json
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.files import write_bytes, write_text
from conformance.grading.submissions import GradingError, Submission

MIGRATIONS = (
    """
    CREATE TABLE runs (run INTEGER PRIMARY KEY, started TEXT NOT NULL, options TEXT NOT NULL);
    CREATE TABLE submissions (
        run INTEGER NOT NULL REFERENCES runs, id TEXT NOT NULL, impl TEXT NOT NULL, role TEXT NOT NULL,
        "group" TEXT NOT NULL, base TEXT NOT NULL, folder TEXT NOT NULL, key TEXT, PRIMARY KEY (run, id));
    CREATE TABLE outcomes (
        key TEXT PRIMARY KEY, refused TEXT NOT NULL, suspicions TEXT NOT NULL, seconds REAL NOT NULL);
    CREATE TABLE results (
        key TEXT NOT NULL REFERENCES outcomes, part TEXT NOT NULL, kind TEXT NOT NULL, claim TEXT NOT NULL,
        verdict TEXT NOT NULL, root TEXT NOT NULL, diagnosis TEXT NOT NULL, what TEXT NOT NULL, expected TEXT NOT NULL,
        got TEXT NOT NULL, error REAL, bound REAL, place TEXT NOT NULL, mend TEXT NOT NULL, message TEXT NOT NULL,
        example TEXT NOT NULL, seconds REAL NOT NULL, PRIMARY KEY (key, part, claim)) WITHOUT ROWID;
    CREATE VIEW claims AS SELECT run, id, "group", results.* FROM submissions JOIN results USING (key);
    CREATE VIEW grades AS
        SELECT run, id, "group", role, impl, refused, suspicions, outcomes.seconds AS seconds,
            (SELECT count(*) FROM results WHERE key = outcomes.key AND verdict = 'PASS') AS kept,
            (SELECT count(*) FROM results WHERE key = outcomes.key AND verdict IN ('FAIL', 'ERROR')) AS broken
        FROM submissions JOIN outcomes USING (key);
    """,
)
"""What brings a database from each version to the next; `PRAGMA user_version` says which it has."""

TEXTS = ("claim", "verdict", "root", "diagnosis", "what", "expected", "got", "place", "mend", "message")
COLUMNS = ("key", "part", "kind", *TEXTS, "error", "bound", "example", "seconds")


class Store:
    """A database of results, made or brought up to date when it is opened. Raises GradingError, with a sentence."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._database = sqlite3.connect(path, timeout=60.0, isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = NORMAL")
            self._migrate()
        except sqlite3.DatabaseError as error:
            raise GradingError(f"{path} is no database of results: {error}; name another file with --store") from error

    def _migrate(self) -> None:
        (version,) = self._database.execute("PRAGMA user_version").fetchone()
        if version > len(MIGRATIONS):
            raise GradingError(
                f"{self.path} has version {version} of the tables, and this suite knows {len(MIGRATIONS)}: "
                "update the suite"
            )
        for number, script in enumerate(MIGRATIONS[version:], version + 1):
            self._database.executescript(f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {number}; COMMIT;")

    def close(self) -> None:
        self._database.close()

    def begin(self, submissions: Sequence[Submission], options: Mapping[str, Any]) -> int:
        """A new run of these submissions; its number."""
        with _transaction(self._database):
            run = self._database.execute(
                "INSERT INTO runs (started, options) VALUES (?, ?)",
                (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), json.dumps(options)),
            ).lastrowid
            self._database.executemany(
                "INSERT INTO submissions VALUES (?, ?, ?, ?, ?, ?, ?, NULL)",
                [(run, s.id, s.impl, s.role, s.group, str(s.base), str(s.folder or "")) for s in submissions],
            )
        assert run is not None
        return run

    def last_run(self) -> int:
        """The number of the last run. Raises GradingError when there was none."""
        (run,) = self._database.execute("SELECT max(run) FROM runs").fetchone()
        if run is None:
            raise GradingError(f"{self.path} holds no run; grade something first")
        return int(run)

    def options(self, run: int) -> dict[str, Any]:
        (text,) = self._database.execute("SELECT options FROM runs WHERE run = ?", (run,)).fetchone()
        options: dict[str, Any] = json.loads(text)
        return options

    def waiting(self, run: int) -> list[Submission]:
        """The submissions of a run that are not graded yet."""
        rows = self._database.execute(
            'SELECT id, impl, role, "group", base, folder FROM submissions WHERE run = ? AND key IS NULL ORDER BY id',
            (run,),
        )
        return [
            Submission(row[0], row[1], row[2], row[3], Path(row[4]), Path(row[5]) if row[5] else None) for row in rows
        ]

    def knows(self, key: str) -> bool:
        return self._database.execute("SELECT 1 FROM outcomes WHERE key = ?", (key,)).fetchone() is not None

    def brief(self, key: str) -> tuple[int, bool, float]:
        """How many claims an outcome broke, whether it was refused, and how many seconds it took."""
        refused, seconds = self._database.execute(
            "SELECT refused <> '', seconds FROM outcomes WHERE key = ?", (key,)
        ).fetchone()
        (broken,) = self._database.execute(
            "SELECT count(*) FROM results WHERE key = ? AND verdict IN ('FAIL', 'ERROR')", (key,)
        ).fetchone()
        return int(broken), bool(refused), float(seconds)

    def answer(self, run: int, id: str, key: str) -> None:
        """A submission of a run has what is known of this key."""
        self._database.execute("UPDATE submissions SET key = ? WHERE run = ? AND id = ?", (key, run, id))

    def add(self, run: int, id: str, key: str, outcome: Mapping[str, Any]) -> None:
        """Keep what came of a submission: all of it, or nothing. A second time it changes nothing."""
        refused = outcome["refused"] or "; ".join(part["refused"] for part in outcome["parts"] if part["refused"])
        rows = [_row(key, part, result) for part in outcome["parts"] for result in part["results"]]
        with _transaction(self._database):
            self._database.execute(
                "INSERT OR IGNORE INTO outcomes VALUES (?, ?, ?, ?)",
                (key, refused, json.dumps(outcome["suspicions"]), outcome["seconds"]),
            )
            self._database.executemany(
                f"INSERT OR IGNORE INTO results ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})", rows
            )
            self.answer(run, id, key)

    def grades(self, run: int) -> list[dict[str, Any]]:
        """The rows of `grades` of a run, by id."""
        return self._dicts("SELECT * FROM grades WHERE run = ? ORDER BY id", (run,))

    def results(self, run: int, id: str) -> list[dict[str, Any]]:
        """The rows of a submission's claims."""
        return self._dicts("SELECT * FROM claims WHERE run = ? AND id = ? ORDER BY part, claim", (run, id))

    def broken(self, run: int) -> list[dict[str, Any]]:
        """The rows of the claims that are broken, of a whole run."""
        return self._dicts(
            "SELECT * FROM claims WHERE run = ? AND verdict IN ('FAIL', 'ERROR') ORDER BY id, part, claim", (run,)
        )

    def failures_of_claims(self) -> dict[str, int]:
        """How many outcomes broke each claim."""
        rows = self._database.execute(
            "SELECT claim, count(*) FROM results WHERE verdict IN ('FAIL', 'ERROR') GROUP BY claim"
        )
        return dict(rows.fetchall())

    def query(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """(headings, rows) of a query that changes nothing. Raises GradingError."""
        try:
            self._database.execute("PRAGMA query_only = 1")
            cursor = self._database.execute(sql)
            return [column[0] for column in cursor.description or ()], cursor.fetchall()
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise GradingError(
                f"--query: {error}; the tables are submissions, outcomes, results, claims, grades"
            ) from error
        finally:
            self._database.execute("PRAGMA query_only = 0")

    def _dicts(self, sql: str, values: Sequence[Any]) -> list[dict[str, Any]]:
        cursor = self._database.execute(sql, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]


class _transaction:
    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def __enter__(self) -> None:
        self._database.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, *_: object) -> None:
        self._database.execute("COMMIT" if kind is None else "ROLLBACK")


def _row(key: str, part: Mapping[str, Any], result: Mapping[str, Any]) -> tuple[Any, ...]:
    """A row of a result, in which nothing need stand that is empty."""
    texts = (result.get(name, "") for name in TEXTS)
    numbers = (result.get(name, 0.0) for name in ("error", "bound"))
    example = json.dumps(result["example"]) if result.get("example") else "{}"
    return (key, part["name"], part["kind"], *texts, *numbers, example, result.get("seconds", 0.0))


def export(headings: Sequence[str], rows: Iterable[Sequence[Any]], path: Path) -> None:
    """Write a table as .csv, or as .parquet where pyarrow is installed. Raises GradingError, OSError."""
    if path.suffix == ".csv":
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        writer.writerow(headings)
        writer.writerows(rows)
        write_text(path, text.getvalue())
    elif path.suffix == ".parquet":
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError as error:
            raise GradingError(f"{path}: Parquet needs pyarrow; pip install pyarrow, or name a .csv file") from error
        columns = list(zip(*rows, strict=True)) or [()] * len(headings)
        sink = pyarrow.BufferOutputStream()
        parquet.write_table(pyarrow.table(dict(zip(headings, map(list, columns), strict=True))), sink)
        write_bytes(path, sink.getvalue().to_pybytes())
    else:
        raise GradingError(f"{path}: the name must end in .csv or .parquet")
