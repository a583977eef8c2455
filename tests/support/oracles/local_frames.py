"""DataFrames of rows in this process: the part of Spark's API that the oracle uses.

A Spark session takes longer than all other tests of the oracle. Nulls behave as in SQL. Times are
microseconds. Fingerprints are of 64 bits and skip nulls, like Spark's, but differ from them.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from functools import cmp_to_key
from operator import add, and_, eq, ge, gt, le, lt, ne, or_, sub, xor
from types import SimpleNamespace

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Row
from pyspark.sql.pandas.types import to_arrow_schema

from tests.support.world.frames import schema_of

MASK = (1 << 64) - 1


def signed(number):
    """Return the low 64 bits of a number as a signed one."""
    number &= MASK
    return number - (1 << 64) if number >> 63 else number


def flat(value):
    """Yield the values that a fingerprint covers: all but nulls, at any depth."""
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, list):
        for each in value:
            yield from flat(each)
    elif value is not None:
        yield value


def order_of(left, right):
    """Compare two values, nulls first and structs by their fields."""
    if isinstance(left, dict) and isinstance(right, dict):
        left, right = [*left.values()], [*right.values()]
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        pairs = zip(left, right, strict=True)
        return next((found for found in (order_of(*pair) for pair in pairs) if found), 0)
    if left is None or right is None:
        return (left is not None) - (right is not None)
    return (left > right) - (left < right)


ascending = cmp_to_key(order_of)


def hashable(value):
    return tuple(value.items()) if isinstance(value, dict) else value


# -- columns -----------------------------------------------------------------------------------


class Column:
    """An expression over the columns of a row; `value` computes it."""

    def __init__(self, value, name=None, equal=None):
        self.value, self.name, self.equal = value, name, equal

    def alias(self, name):
        return Column(self.value, name)

    def cast(self, kind):
        kinds = {"int": int, "bigint": int, "boolean": bool}
        return strict(kinds[kind], self)

    astype = cast

    def __and__(self, other):
        def value(row):
            values = (self.value(row), column(other).value(row))
            return False if False in values else None if None in values else True

        return Column(value)

    def __or__(self, other):
        def value(row):
            values = (self.value(row), column(other).value(row))
            return True if True in values else None if None in values else False

        return Column(value)

    def __invert__(self):
        return strict(lambda value: not value, self)

    def __eq__(self, other):
        made = strict(eq, self, other)
        made.equal = (self, column(other))
        return made

    __hash__ = None

    def __ne__(self, other):
        return strict(ne, self, other)

    def __lt__(self, other):
        return strict(lt, self, other)

    def __le__(self, other):
        return strict(le, self, other)

    def __gt__(self, other):
        return strict(gt, self, other)

    def __ge__(self, other):
        return strict(ge, self, other)

    def __add__(self, other):
        return strict(add, self, other)

    def __sub__(self, other):
        return strict(sub, self, other)

    def __getitem__(self, name):
        return strict(lambda value: value[name], self)

    def bitwiseAND(self, other):
        return strict(and_, self, other)

    def bitwiseOR(self, other):
        return strict(or_, self, other)

    def bitwiseXOR(self, other):
        return strict(xor, self, other)

    def isNull(self):
        return Column(lambda row: self.value(row) is None)

    def isNotNull(self):
        return Column(lambda row: self.value(row) is not None)

    def eqNullSafe(self, other):
        return Column(lambda row: self.value(row) == column(other).value(row))

    def isin(self, *values):
        return strict(lambda value: value in values, self)

    def between(self, low, high):
        return (self >= low) & (self <= high)

    def rlike(self, pattern):
        return strict(lambda text: re.search(pattern, text) is not None, self)

    def over(self, window):
        return Numbered(window)


class When(Column):
    """`CASE WHEN`: the value of the first condition that is true."""

    def __init__(self, cases, default=None):
        self.cases, self.default = cases, column(default)
        super().__init__(self._value)

    def _value(self, row):
        for condition, value in self.cases:
            if condition.value(row) is True:
                return value.value(row)
        return self.default.value(row)

    def when(self, condition, value):
        return When([*self.cases, (condition, column(value))])

    def otherwise(self, default):
        return When(self.cases, default)


class Aggregate(Column):
    """A value computed from all rows in a group."""

    def __init__(self, over_rows, name=None):
        super().__init__(None, name)
        self.over_rows = over_rows

    def alias(self, name):
        return Aggregate(self.over_rows, name)


class Explode(Column):
    """A row for each element."""


class Numbered(Column):
    """The number of a row within a window, from 1."""

    def __init__(self, window):
        super().__init__(None)
        self.window = window


class Window:
    """Rows with equal values in some columns, in the order of others."""

    def __init__(self, keys, order=()):
        self.keys, self.order = keys, order

    @classmethod
    def partitionBy(cls, *keys):
        return cls(keys)

    def orderBy(self, *order):
        return Window(self.keys, order)


def column(value):
    return value if isinstance(value, Column) else Column(lambda row: value)


def named(value):
    return col(value) if isinstance(value, str) else value


def strict(function, *operands):
    """Return a column that is null if an operand is."""
    columns = [column(each) for each in operands]

    def value(row):
        values = [each.value(row) for each in columns]
        return None if any(each is None for each in values) else function(*values)

    return Column(value)


def col(name):
    def value(row):
        if name in row:
            return row[name]
        head, _, field = name.partition(".")
        whole = row[head]
        return None if whole is None else whole[field]

    return Column(value, name)


def coalesce(*columns):
    columns = [named(each) for each in columns]

    def value(row):
        return next((v for each in columns if (v := each.value(row)) is not None), None)

    return Column(value)


def greatest(*columns):
    columns = [named(each) for each in columns]

    def value(row):
        values = [v for each in columns if (v := each.value(row)) is not None]
        return max(values, default=None)

    return Column(value)


def struct(*columns):
    columns = [named(each) for each in columns]
    return Column(lambda row: {each.name or at: each.value(row) for at, each in enumerate(columns)})


def array(*columns):
    return Column(lambda row: [each.value(row) for each in columns])


def xxhash64(*columns):
    columns = [named(each) for each in columns]

    def value(row):
        covered = [*flat([each.value(row) for each in columns])]
        kinds = [(type(each).__name__, each) for each in covered]
        digest = hashlib.blake2b(repr(kinds).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big", signed=True)

    return Column(value)


def of_elements(choose):
    """Return a function of an array that gives each element to a function of columns."""

    def function(values, of_element):
        inner = of_element(Column(lambda row: row[0]))
        return strict(
            lambda elements: choose(elements, [inner.value([each]) for each in elements]),
            named(values),
        )

    return function


def aggregate(reduce_values):
    """Return an aggregate over the values that are not null. Without such values it is null."""

    def function(name):
        operand = named(name)

        def over_rows(rows):
            values = [v for row in rows if (v := operand.value(row)) is not None]
            return reduce_values(values) if values else None

        return Aggregate(over_rows)

    return function


def folded(operator):
    def over_values(values):
        total = 0
        for each in values:
            total = operator(total, each)
        return total

    return aggregate(over_values)


def max_by(name, order):
    chosen, by = named(name), named(order)

    def over_rows(rows):
        ordered = [row for row in rows if by.value(row) is not None]
        if not ordered:
            return None
        return chosen.value(max(ordered, key=lambda row: ascending(by.value(row))))

    return Aggregate(over_rows)


FUNCTIONS = SimpleNamespace(
    col=col,
    lit=column,
    coalesce=coalesce,
    greatest=greatest,
    when=lambda condition, value: When([(condition, column(value))]),
    struct=struct,
    array=array,
    explode=lambda values: Explode(values.value),
    array_compact=lambda values: strict(lambda v: [e for e in v if e is not None], values),
    array_contains=lambda values, element: strict(lambda v, e: e in v, named(values), element),
    filter=of_elements(
        lambda elements, found: [e for e, f in zip(elements, found, strict=True) if f is True]
    ),
    transform=of_elements(lambda _, found: found),
    try_element_at=lambda values, at: Column(
        lambda row: v[at.value(row)] if (v := values.value(row)) else None
    ),
    xxhash64=xxhash64,
    length=lambda value: strict(len, value),
    hex=lambda value: strict(lambda data: data.hex().upper(), value),
    rpad=lambda text, size, fill: strict(lambda t: t.ljust(size, fill)[:size], text),
    substring=lambda text, at, size: strict(lambda t: t[at - 1 : at - 1 + size], text),
    conv=lambda text, base, to: {-10: strict(lambda t: signed(int(t, base)), text)}[to],
    shiftleft=lambda value, bits: strict(lambda v: signed(v << bits), value),
    shiftrightunsigned=lambda value, bits: strict(lambda v: signed((v & MASK) >> bits), value),
    unix_micros=named,
    unix_millis=lambda name: strict(lambda micros: micros // 1000, named(name)),
    max=aggregate(lambda values: max(values, key=ascending)),
    min=aggregate(lambda values: min(values, key=ascending)),
    sum=folded(add),
    bit_or=folded(or_),
    bit_xor=folded(xor),
    collect_set=aggregate(lambda values: [*dict.fromkeys(values)]),
    count=lambda _: Aggregate(len),
    max_by=max_by,
    row_number=lambda: Column(None),
    broadcast=lambda frame: frame,
)
"""The replacement of `pyspark.sql.functions`."""


# -- frames ------------------------------------------------------------------------------------


class Frame:
    """Rows of named columns; `names` has pairs of the frame's alias and the column's name."""

    def __init__(self, session, names, rows, tasks=None):
        """Take the rows, or one list of rows for each task."""
        self.sparkSession, self.names = session, names
        self.rows = rows if tasks is None else [row for task in tasks for row in task]
        self.tasks = [rows] if tasks is None else tasks

    @property
    def columns(self):
        return [name for _, name in self.names]

    def _views(self):
        """Yield each row by the names of its columns."""
        keys = [name for _, name in self.names]
        longer = [alias and f"{alias}.{name}" for alias, name in self.names]
        for row in self.rows:
            view = dict(zip(keys, row, strict=True))
            view.update(zip(longer, row, strict=True))
            yield view

    def _made(self, names, rows):
        return Frame(self.sparkSession, [(None, name) for name in names], rows)

    def _chosen(self, given):
        for each in given:
            if isinstance(each, str) and each.endswith("*"):
                alias = each.removesuffix("*").removesuffix(".") or None
                for own, name in self.names:
                    if alias in (None, own):
                        yield col(f"{own}.{name}" if own else name).alias(name)
            else:
                yield named(each)

    def select(self, *given):
        chosen = [*self._chosen(given)]
        names = [each.name.rpartition(".")[2] for each in chosen]
        assert len({*names}) == len(names), names
        rows = [tuple(each.value(view) for each in chosen) for view in self._views()]
        return self._made(names, rows)

    def selectExpr(self, *texts):
        made = []
        for text in texts:
            found = re.fullmatch(r"timestamp_millis\((\w+)\) AS (\w+)", text)
            micros = found and strict(lambda ms: ms * 1000, col(found[1])).alias(found[2])
            made.append(micros or text)
        return self.select(*made)

    def withColumn(self, name, value):
        kept = [each for each in self.columns if each != name]
        if isinstance(value, Numbered):
            return self._numbered(name, value.window)
        if isinstance(value, Explode):
            at = [self.columns.index(each) for each in kept]
            rows = [
                (*(row[each] for each in at), element)
                for row, view in zip(self.rows, self._views(), strict=True)
                for element in value.value(view)
            ]
            return self._made([*kept, name], rows)
        return self.select(
            *(value.alias(name) if each == name else each for each in self.columns),
            *([] if name in self.columns else [value.alias(name)]),
        )

    def _numbered(self, name, window):
        groups = defaultdict(list)
        for row, view in zip(self.rows, self._views(), strict=True):
            groups[tuple(view[key] for key in window.keys)].append((row, view))
        rows = []
        for members in groups.values():
            members.sort(key=lambda each: ascending([each[1][key] for key in window.order]))
            rows += [(*row, number) for number, (row, _) in enumerate(members, 1)]
        return self._made([*self.columns, name], rows)

    def where(self, condition):
        pairs = zip(self.rows, self._views(), strict=True)
        rows = [row for row, view in pairs if condition.value(view) is True]
        return Frame(self.sparkSession, self.names, rows)

    def drop(self, *names):
        return self.select(*(each for each in self.columns if each not in names))

    def alias(self, alias):
        return Frame(self.sparkSession, [(alias, name) for name in self.columns], self.rows)

    def join(self, other, on, how="inner"):
        if isinstance(on[0], str):
            pairs, hidden = [(col(name), col(name)) for name in on], {*on}
        else:
            pairs, hidden = [each.equal for each in on], {*()}
            own = {f"{alias}.{name}" for alias, name in self.names}
            pairs = [(a, b) if a.name in own else (b, a) for a, b in pairs]

        def key_of(view, side):
            values = tuple(hashable(pair[side].value(view)) for pair in pairs)
            return None if None in values else values

        right = defaultdict(list)
        for at, view in enumerate(other._views()):
            right[key_of(view, 1)].append(at)
        shown = [at for at, name in enumerate(other.columns) if name not in hidden]
        rows, seen = [], set()
        for row, view in zip(self.rows, self._views(), strict=True):
            key = key_of(view, 0)
            matches = right.get(key, []) if key is not None else []
            seen.update(matches)
            if how == "semi":
                rows += [row] if matches else []
                continue
            rows += [(*row, *(other.rows[match][at] for at in shown)) for match in matches]
            if not matches and how in ("left", "full_outer"):
                rows.append((*row, *(None for _ in shown)))
        if how == "semi":
            return Frame(self.sparkSession, self.names, rows)
        if how == "full_outer":
            nothing = (None,) * len(self.names)
            rows += [
                (*nothing, *(row[each] for each in shown))
                for at, row in enumerate(other.rows)
                if at not in seen
            ]
        return Frame(self.sparkSession, [*self.names, *(other.names[at] for at in shown)], rows)

    def groupBy(self, *keys):
        return Grouped(self, [named(each) for each in keys])

    def unionByName(self, other):
        assert {*self.columns} == {*other.columns}, {*self.columns} ^ {*other.columns}
        return self._made(self.columns, [*self.rows, *other.select(*self.columns).rows])

    def distinct(self):
        return self._made(self.columns, [*dict.fromkeys(self.rows)])

    def orderBy(self, *names):
        pairs = [*zip(self.rows, self._views(), strict=True)]
        pairs.sort(key=lambda pair: ascending([pair[1][name] for name in names]))
        return Frame(self.sparkSession, self.names, [row for row, _ in pairs])

    def limit(self, count):
        return Frame(self.sparkSession, self.names, self.rows[:count])

    def coalesce(self, _):
        return self

    def persist(self):
        self.sparkSession.persisted += 1
        return self

    def unpersist(self):
        self.sparkSession.persisted -= 1

    def count(self):
        return len(self.rows)

    def collect(self):
        row = Row(*self.columns)
        return [row(*values) for values in self.rows]

    def repartitionById(self, count, name):
        at = self.columns.index(name)
        tasks = [[row for row in self.rows if row[at] == number] for number in range(count)]
        return Frame(self.sparkSession, self.names, None, tasks)

    def sortWithinPartitions(self, *names):
        at = [self.columns.index(name) for name in names]
        tasks = [sorted(task, key=lambda row: [row[each] for each in at]) for task in self.tasks]
        return Frame(self.sparkSession, self.names, None, tasks)

    def mapInArrow(self, function, schema):
        names = (schema_of(schema) if isinstance(schema, str) else schema).names
        tasks = []
        for task in self.tasks:
            data = [dict(zip(self.columns, row, strict=True)) for row in task]
            batches = pa.Table.from_pylist(data).to_batches() if data else []
            try:
                tasks.append([row for batch in function(iter(batches)) for row in rows_of(batch)])
            except Exception as error:
                raise PySparkException(f"{type(error).__name__}: {error}") from error
        return Frame(self.sparkSession, [(None, name) for name in names], None, tasks)


def rows_of(batch):
    """Return the rows of an Arrow batch; times as microseconds."""
    columns = [
        (each.cast(pa.int64()) if pa.types.is_timestamp(each.type) else each).to_pylist()
        for each in batch.columns
    ]
    return [*zip(*columns, strict=True)]


class Grouped:
    """Rows of a frame with equal keys."""

    def __init__(self, frame, keys):
        self.frame, self.keys = frame, keys

    def agg(self, *aggregates):
        groups = defaultdict(list)
        for view in self.frame._views():
            groups[tuple(key.value(view) for key in self.keys)].append(view)
        names = [each.name for each in (*self.keys, *aggregates)]
        rows = [
            (*key, *(each.over_rows(views) for each in aggregates)) for key, views in groups.items()
        ]
        return self.frame._made(names, rows)

    def count(self):
        return self.agg(Aggregate(len, "count"))


class Session:
    """Creates frames. `persisted` counts persisted frames, `slices` has the tasks of each range."""

    def __init__(self):
        self.persisted = 0
        self.slices = []
        self.conf = Settings()
        self.sparkContext = SimpleNamespace(defaultParallelism=2)

    def createDataFrame(self, table, schema=None):
        assert schema is None or table.schema == to_arrow_schema(schema)
        assert not any(map(pa.types.is_null, table.schema.types))
        rows = [tuple(row.values()) for row in table.to_pylist()]
        return Frame(self, [(None, name) for name in table.column_names], rows)

    def range(self, start, end, step, slices):
        numbers = [(number,) for number in range(start, end, step)]
        share = -(-len(numbers) // slices) or 1
        self.slices.append(slices)
        tasks = [numbers[at : at + share] for at in range(0, len(numbers), share)]
        return Frame(self, [(None, "id")], None, tasks)


class Settings(dict):
    """Settings of a session."""

    def set(self, key, value):
        self[key] = value

    def unset(self, key):
        del self[key]


MODULES = ("by_key", "kinds", "rows", "verify", "versions")


def local_session(monkeypatch):
    """Return a session for frames of this process; the oracle's rules build columns for them."""
    for name in MODULES:
        path = f"logstore.spark.oracle.{name}"
        monkeypatch.setattr(f"{path}.F", FUNCTIONS)
        monkeypatch.setattr(f"{path}.Window", Window, raising=False)
    return Session()
