"""The tables of words of a model: which it reads, which read nothing but padding, and which are tied to its head."""

from __future__ import annotations

import re

import torch
from torch import Tensor, nn

from conformance.adapters.whole.calling import Lookups, quiet_evaluation
from conformance.adapters.whole.class_source import source_of
from conformance.adapters.whole.running import RunningModel

_TIES = re.compile(
    r"(\w[\w.\[\]]*)\.(weight|embedding)\s*=\s*(?:(?:nn\.)?Parameter\(|copy\.deepcopy\(|deepcopy\()*"
    r"(\w[\w.\[\]]*)\.(weight)\b"
)
"""One weight is assigned to another: itself, or as a new parameter that starts as its copy."""


_LARGE = 3.0
"""Three times the deviation that torch gives tables: no recipe starts words so large."""


class TableProbes(RunningModel):
    """The tables of words, of a running model."""

    def token_tables(self) -> set[int]:
        """Where in memory the tables of the main input's tokens are; empty when it reads none."""
        if "tables" not in self.known:
            self.known["tables"] = _table_names(self.twin())
        names = self.known["tables"]
        return {p.data_ptr() for n, p in self.module.named_parameters(remove_duplicate=False) if n in names}

    def table_widths(self) -> set[int]:
        """How many numbers a row of these tables has."""
        tables = self.token_tables()
        return {p.shape[1] for p in self.module.parameters() if p.data_ptr() in tables and p.dim() == 2}

    def padding_tables(self) -> set[str]:
        """Tables of which a run reads no row but that of padding, which never learns: all of one segment, perhaps."""
        with quiet_evaluation(self.module), Lookups() as lookups:
            self.run(self.example(batch=4))
        read: dict[int, list[Tensor]] = {}
        for table, ids in lookups.seen:
            read.setdefault(table.data_ptr(), []).append(ids)
        return {
            f"{path}.weight".lstrip(".")
            for path, part in self.module.named_modules()
            if isinstance(part, nn.Embedding)
            and part.padding_idx is not None
            and part.weight.data_ptr() in read
            and all(bool((ids == part.padding_idx).all()) for ids in read[part.weight.data_ptr()])
        }

    def large_tables(self) -> dict[str, float]:
        """The tables of words whose numbers start with a larger deviation than three times that of torch's own start,
        and that deviation."""
        fresh = self.made.fresh(3)
        places = self.token_tables()
        names = {name for name, p in self.module.named_parameters() if p.data_ptr() in places}
        tables = {name: p for name, p in fresh.named_parameters() if name in names and p.ndim == 2}
        spread = {name: float(p.detach().double().std()) for name, p in tables.items()}
        return {name: size for name, size in spread.items() if _LARGE < size < float("inf")}

    def copied_head(self) -> str | None:
        """The parameter that starts as a copy of a table of tokens and is another tensor; None without one. A table
        may start as a copy of another one, and a copy that is not trained may follow its original."""
        fresh = self.made.fresh(3)
        vocabs = {one.vocab for one in self.calling.inputs if one.vocab}
        tables = [t.weight for t in fresh.modules() if isinstance(t, nn.Embedding) and t.num_embeddings in vocabs]
        ids = {id(table) for table in tables}
        for name, parameter in fresh.named_parameters():
            if id(parameter) in ids or not parameter.requires_grad:
                continue
            for table in tables:
                alike = parameter.shape == table.shape
                if alike and torch.equal(parameter, table) and bool(table.std() > 0):
                    return name
        return None

    def says_tied(self) -> tuple[str, bool] | None:
        """Where the code ties two weights, and whether they are one tensor; None where it does not, or under an option
        that is off."""
        for part in self.module.modules():
            cls: type = type(part)
            source, file, start = source_of(cls) or ("", "", 0)
            for number, line in enumerate(source.splitlines()):
                found = _TIES.search(line.split("#")[0])
                if not found or not found.group(1).startswith("self."):
                    continue
                conditional = len(line) - len(line.lstrip()) > 8
                one, other = (_attribute(part, text) for text in (f"{found[1]}.{found[2]}", f"{found[3]}.{found[4]}"))
                if one is None or other is None or one.shape != other.shape:
                    continue
                if conditional and one is not other:
                    continue  # perhaps an option that is off
                return f"{file}:{start + number}", one is other
        return None


def _table_names(subject: RunningModel) -> set[str]:
    inputs = subject.tensors(subject.example(2, src=5, tgt=4) if subject.calling.two_sided else subject.example(2))
    main = inputs[subject.calling.main.meaning]
    ids = main.reshape(-1).sort()[0]
    with Lookups() as lookups, torch.no_grad(), subject.mode(False):
        subject.run(inputs)
    read = {
        table.data_ptr()
        for table, indices in lookups.seen
        if indices.numel() == ids.numel() and torch.equal(indices.reshape(-1).sort()[0], ids)
    }
    if subject.calling.answers_for_start:
        read |= {table.data_ptr() for table in lookups.read_behind_a_start(main)}
    return {name for name, p in subject.module.named_parameters(remove_duplicate=False) if p.data_ptr() in read}


def _attribute(part: nn.Module, text: str) -> torch.Tensor | None:
    """What "self.a.b[0].weight" is on the part; None when it is nothing."""
    value: object = part
    for name in re.findall(r"\w+", text.removeprefix("self")):
        value = value[int(name)] if name.isdigit() else getattr(value, name, None)  # type: ignore[index]
        if value is None:
            return None
    return value if isinstance(value, torch.Tensor) else None
