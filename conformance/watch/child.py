"""The process in which a script is watched: `python -m conformance.watch.child ANSWER JSON`.

It runs the script with the streams of the terminal, and writes what was seen to the file ANSWER when the script ends,
whole or not at all.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from conformance.watch.launching import Script, launched
from conformance.watch.script import watched


def main(arguments: list[str]) -> None:
    answer, order = Path(arguments[0]), json.loads(arguments[1])
    sys.path[:] = [folder for folder in sys.path if folder not in order["hidden"]]
    try:
        script = launched(Script(order["script"], order["arguments"], order["is_module"]))
    except ValueError as error:
        sys.exit(f"conformance watch: {error}")
    run = watched(script, order["steps"], order["seconds"], order["until"], order["keeps_moments"], order["least"])
    run.expected = order["expected"]
    sys.stdout.flush()
    from conformance.watch.course import course_of
    from conformance.watch.verdicts import results_of

    values = {
        "ended": run.ended,
        "steps": run.steps,
        "notes": run.notes,
        "moments": run.moments,
        "course": course_of(run),
        "saved_at": run.saved_at(),
        "results": [result.to_json() for result in results_of(run).values()],
    }
    written = answer.with_suffix(".part")
    written.write_text(json.dumps(values, default=str), encoding="utf-8")
    os.replace(written, answer)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # threads and workers of the script have nothing more to do


if __name__ == "__main__":
    main(sys.argv[1:])
