"""Targets: the commands of every table and figure, in order, and the files that they make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from reproduce.scales import Scale

OA_MINE = "oa-mine"
DATASETS = (OA_MINE, "ae-110k")
# With earlier values, without, in a skeleton with gaps, and every field alone.
_KEEP_ALL = "isolated:min_probability=0"
INDEPENDENCE = ("autoregressive", _KEEP_ALL, f"{_KEEP_ALL}:layout=gapped", f"{_KEEP_ALL}+alone")
# The layouts of fine-tuning; autoregressive is first, the baseline of comparisons.
LAYOUTS: Mapping[str, str] = MappingProxyType(
    {
        "autoregressive": "autoregressive",
        "isolated": "isolated",
        "paper-1": "paper:documents_per_prompt=1",
        "paper-6": "paper",
    }
)
# The setting `paper`, a part at a time.
_STACKING = tuple(f"paper:documents_per_prompt={j}" for j in (1, 2, 4, 6))
PARTS = (
    _KEEP_ALL,
    f"{_KEEP_ALL}:layout=gapped",
    f"{_KEEP_ALL}:layout=gapped:slots=causal",
    *_STACKING,
    "paper:slots=independent",
    "paper:constrain=types",
    f"{_KEEP_ALL}:documents=stacked:documents_per_prompt=6",
    "autoregressive",
)
_ATTRIBUTES = (1, 4, 8, 16, 32)


@dataclass(frozen=True, slots=True)
class Step:
    """A command of a target.

    arguments: of `schemax`, or of `python -m` if they begin with a module of ours.
    makes: the file or folder whose existence shows that the step is done.
    to_file: True if the command's output becomes the file.
    launch: the launcher of `schemax`; () for Python itself.
    """

    arguments: tuple[str, ...]
    makes: Path
    to_file: bool = False
    launch: tuple[str, ...] = ()


def data(
    scale: Scale, out: Path, source: str | None = None, datasets: Sequence[str] = DATASETS
) -> Iterator[Step]:
    """Yields the steps of data sets and their samples. source: as in `reproduce.dataset`."""
    given = () if source is None else ("--source", source)
    for name in datasets:
        whole, used = out / "published" / name, out / "data" / name
        yield Step(("reproduce.dataset", name, *given, "-o", str(whole)), whole / "dataset.json")
        counts = {"--train": scale.train_rows, "--test": scale.test}
        few = [word for option, n in counts.items() if n for word in (option, str(n))]
        arguments = ("reproduce.sample", str(whole), str(used), *few)
        yield Step(arguments, used / "attributes.json")


def models(
    scale: Scale, out: Path, source: str | None = None, datasets: Sequence[str] = DATASETS
) -> Iterator[Step]:
    """Yields the fine-tuning of every size, on data sets, for both ways to decode."""
    yield from data(scale, out, source, datasets)
    for name, place in scale.models.items():
        base = _base(place, out)
        yield from _made(base, place)
        for dataset in datasets:
            for decoding in ("autoregressive", "paper"):
                tuned = _tuned(out, dataset, name, decoding)
                yield _train(scale, out / "data" / dataset, name, base, decoding, tuned)


def table1(scale: Scale, out: Path, source: str | None = None) -> Iterator[Step]:
    """Yields the steps of table 1: F1 and dollars per 1,000 documents."""
    yield from models(scale, out, source)
    for dataset in DATASETS:
        for name in scale.models:
            for decoding in ("autoregressive", "paper"):
                tuned = str(_tuned(out, dataset, name, decoding))
                result = out / "table1" / f"{dataset}_{name}_{decoding}.json"
                yield _evaluate(out / "data" / dataset, tuned, decoding, result, scale)


def table3(scale: Scale, out: Path, source: str | None = None) -> Iterator[Step]:
    """Yields the steps of table 3: speculative decoding against HPD, batch 1, no stacking."""
    single = ("--batch-size", "1", "--generate-batches", "1", "--rival-documents", "16")
    one = (*scale.large, *scale.bench, *single)
    chosen = [("--draft-acceptance", share) for share in ("0.6", "0.8", "0.9")]
    if scale.drafts:
        chosen = [("--draft", draft) for draft in scale.drafts]
    result = out / "table3" / "hpd.json"
    engines = "generate,lookup,paper-1,isolated"
    yield _bench((*one, "--engines", engines), result)
    for option, value in chosen:
        result = out / "table3" / f"draft_{value}.json"
        arguments = (*one, "--engines", "generate,draft", option, value)
        yield _bench(arguments, result)


def table4(scale: Scale, out: Path, source: str | None = None) -> Iterator[Step]:
    """Yields the steps of table 4: speed, and F1 by labels or by a judge of whole documents."""
    yield from models(scale, out, source, (OA_MINE,))
    judge = () if scale.judge is None else ("--judge", scale.judge, "--judge-form", "product")
    for name in scale.models:
        for decoding in ("autoregressive", "paper"):
            tuned = str(_tuned(out, "oa-mine", name, decoding))
            result = out / "table4" / f"oa-mine_{name}_{decoding}.json"
            yield _evaluate(out / "data" / "oa-mine", tuned, decoding, result, scale, *judge)


def figure4(scale: Scale, out: Path, source: str | None = None) -> Iterator[Step]:
    """Yields the step of figure 4: documents/s by documents per prompt and prompts per batch."""
    picture = out / "figure4" / "figure4.svg"
    engines = ("--engines", "floor,generate,generate-flash,batch-prompting,continuous", "--sweep")
    listings = (*scale.bench, *scale.grid, *scale.rivals)
    arguments = (*scale.shape, *listings, *engines, "--plot", str(picture))
    yield _bench(arguments, picture.with_suffix(".json"))


def ablations(scale: Scale, out: Path, source: str | None = None) -> Iterator[Step]:
    """Yields the ablations of stacking, in F1 and speed, and of the number of attributes."""
    yield from parts(scale, out, source)
    engines = "generate,batch-prompting,autoregressive,autoregressive-6,paper-1,paper-2,paper-6"
    every = (*scale.shape, *scale.bench, *scale.rivals, "--engines")
    yield _bench((*every, engines), out / "ablations" / "stacking.json")
    for count in _ATTRIBUTES:
        arguments = (*every, "generate,paper-1,isolated", "--attributes", str(count))
        yield _bench(arguments, out / "ablations" / f"attributes_{count}.json")


def parts(scale: Scale, out: Path, source: str | None = None) -> Iterator[Step]:
    """Yields the setting `paper` a part at a time, for the last model, untrained and trained."""
    yield from models(scale, out, source, (OA_MINE,))
    (*_, (name, place)) = scale.models.items()
    drawn = out / "data" / "oa-mine_parts"
    documents = () if scale.parts is None else ("--test", str(scale.parts))
    arguments = ("reproduce.sample", str(out / "published" / "oa-mine"), str(drawn), *documents)
    yield Step(arguments, drawn / "attributes.json")
    tuned = str(_tuned(out, "oa-mine", name, "paper"))
    for how, model in (("untrained", _base(place, out)), ("paper", tuned)):
        result = out / "parts" / f"{name}_{how}.json"
        yield _evaluate(drawn, model, ",".join(PARTS), result, scale)


def stacking(scale: Scale, out: Path, source: str | None = None) -> Iterator[Step]:
    """Yields stacking of six documents, untrained last model: their order, and names in keys."""
    (*_, (_, place)) = scale.models.items()
    base = _base(place, out)
    yield from data(scale, out, source, (OA_MINE,))
    yield from _made(base, place)
    for turned in range(6):
        drawn = out / "data" / f"oa-mine_turned-{turned}"
        documents = () if scale.test is None else ("--test", str(2 * scale.test))
        arguments = (str(out / "published" / "oa-mine"), str(drawn), "--turn", str(turned))
        yield Step(("reproduce.sample", *arguments, *documents), drawn / "attributes.json")
        result = out / "stacking" / f"turned-{turned}.json"
        yield _evaluate(drawn, base, "paper", result, scale)
    spelled = ("--template", str(Path(__file__).parent / "spelled.jinja"))
    for name, more in (("each", ()), ("spelled", spelled), ("unnamed", ())):
        result = out / "stacking" / f"{name}.json"
        step = _evaluate(out / "data" / "oa-mine_turned-0", base, "paper", result, scale, *more)
        named = ("reproduce.ids", *step.arguments, "--format", f"json-{name}")
        yield replace(step, arguments=named)


def independence(scale: Scale, out: Path, source: str | None = None) -> Iterator[Step]:
    """Yields settings with and without earlier values and gaps, on three samples of both data sets.

    For the two largest models, trained autoregressively (without gaps), and the largest untrained.
    """
    yield from models(scale, out, source)
    trained = list(scale.models)[-2:]
    largest = trained[-1]
    place = scale.models[largest]
    for dataset in DATASETS:
        read = {
            "untrained": _base(place, out),
            **{name: str(_tuned(out, dataset, name, "autoregressive")) for name in trained},
        }
        for seed in range(3):
            drawn = out / "data" / f"{dataset}_seed-{seed}"
            few = ("--test", str(scale.drawn), "--seed", str(seed))
            arguments = ("reproduce.sample", str(out / "published" / dataset), str(drawn), *few)
            yield Step(arguments, drawn / "attributes.json")
            for name, model in read.items():
                result = out / "independence" / f"{dataset}_{name}_{seed}.json"
                yield _evaluate(drawn, model, ",".join(INDEPENDENCE), result, scale)


def layouts(scale: Scale, out: Path, source: str | None = None) -> Iterator[Step]:
    """Yields the last model, trained equally long for every layout: all weights, and adapters.

    A model trained autoregressively is decoded in all layouts, in one run; others in their own.
    """
    yield from data(scale, out, source, (OA_MINE,))
    yield from _layouts_trained(scale, out, LAYOUTS)
    (*_, name) = scale.models
    for adapted in (False, True):
        for layout, decoding in LAYOUTS.items():
            asked = ",".join(LAYOUTS.values()) if layout == "autoregressive" else decoding
            result = out / "layouts" / f"{name}_{_how(adapted)}_{layout}.json"
            tuned = str(_for_layout(out, name, layout, adapted))
            yield _evaluate(out / "data" / "oa-mine", tuned, asked, result, scale)


def distillation(scale: Scale, out: Path, source: str | None = None) -> Iterator[Step]:
    """Yields the last model, autoregressive, as teacher of itself and of a third of its layers.

    Both learn to decode `isolated` from the teacher's outputs on the training split; the small one,
    for comparison, also from the annotations.
    """
    yield from data(scale, out, source, (OA_MINE,))
    yield from _layouts_trained(scale, out, ("autoregressive",), adapters=(False,))
    (*_, (name, place)) = scale.models.items()
    base, small = _base(place, out), str(out / "base" / "third")
    yield from _made(base, place)
    arguments = ("reproduce.shrink", base, small, "--share", "0.34")
    yield Step(arguments, Path(small) / "config.json")
    teacher = str(_for_layout(out, name, "autoregressive", adapted=False))
    taught = ("--labels", "teacher", "--teacher", teacher)
    students = {
        "own-answers": (teacher, ("--labels", "self")),
        "small-taught": (small, taught),
        "small-annotated": (small, ()),
    }
    for student, (start, labels) in students.items():
        tuned = out / "models" / f"oa-mine_{name}_{student}"
        own = (*_steps(scale), *labels)
        yield _train(scale, out / "data" / "oa-mine", name, start, "isolated", tuned, own)
        result = out / "distillation" / f"{name}_{student}.json"
        yield _evaluate(out / "data" / "oa-mine", str(tuned), "isolated", result, scale)


TARGETS: Mapping[str, Callable[..., Iterator[Step]]] = MappingProxyType(
    {
        made.__name__: made
        for made in (
            *(data, models, table1, table3, table4),
            *(figure4, ablations, parts, stacking, independence, layouts, distillation),
        )
    }
)


def _layouts_trained(
    scale: Scale,
    out: Path,
    wanted: Iterable[str],
    adapters: tuple[bool, ...] = (False, True),
) -> Iterator[Step]:
    (*_, (name, place)) = scale.models.items()
    base = _base(place, out)
    yield from _made(base, place)
    for adapted in adapters:
        for layout in wanted:
            tuned = _for_layout(out, name, layout, adapted)
            own = (*_steps(scale), *(("--lora", "16") if adapted else ()))
            folder = out / "data" / "oa-mine"
            yield _train(scale, folder, name, base, LAYOUTS[layout], tuned, own)


def _for_layout(out: Path, name: str, layout: str, adapted: bool) -> Path:
    return out / "models" / f"oa-mine_{name}_{layout}-{_how(adapted)}"


def _how(adapted: bool) -> str:
    return "lora" if adapted else "full"


def _steps(scale: Scale) -> tuple[str, str]:
    return "--steps", str(scale.steps)


def _base(place: str, out: Path) -> str:
    return str(out / "base" / place) if place.startswith("layers-") else place


def _made(base: str, place: str) -> Iterator[Step]:
    if place.startswith("layers-"):
        layers = ("--layers", place.removeprefix("layers-"))
        arguments = ("reproduce.shrink", "schemax/weights/embedded", base, *layers)
        yield Step(arguments, Path(base) / "config.json")


def _train(
    scale: Scale,
    data: Path,
    name: str,
    base: str,
    decoding: str,
    tuned: Path,
    instead: tuple[str, ...] = (),
) -> Step:
    """Returns a step of training. instead: options that replace the scale's epochs and adapters."""
    own = ("--model", base, "--decoding", decoding, "--out", str(tuned))
    adapter = ("--lora", "16") if name in scale.adapters else ()
    long = instead or ("--epochs", str(scale.epochs), *adapter)
    more = (*long, "--held-out", "0.05", *scale.train)
    return Step(("train", str(data), *own, *more), tuned / "training.json", launch=scale.launch)


def _tuned(out: Path, dataset: str, name: str, decoding: str) -> Path:
    return out / "models" / f"{dataset}_{name}_{decoding}"


def _evaluate(
    data: Path, model: str, decoding: str, result: Path, scale: Scale, *more: str
) -> Step:
    asked = ("--model", model, "--decoding", decoding, "--price-per-hour", f"{scale.price:.4f}")
    return Step(("evaluate", str(data), *asked, "--json", "--details", *more), result, to_file=True)


def _bench(arguments: tuple[str, ...], result: Path) -> Step:
    return Step(("benchmarks", "compare", *arguments, "--json", str(result)), result)
