"""Declarations: a Pydantic model becomes a flat tuple of attributes.

`AttrSchema` and `attr()` declare what to read from a document; `compile_attributes()` turns any
Pydantic model into `Attribute`s, one per leaf, or says with a `SchemaError` why it cannot.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, RootModel
from pydantic.annotated_handlers import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema

from schemax.constraints import Constraints
from schemax.errors import SchemaError
from schemax.shapes import (
    Distinct,
    Kind,
    Refusal,
    Shape,
    allows_none,
    annotation_of,
    check_default,
    shape_of,
    text_of,
)


@dataclass(frozen=True, slots=True)
class Attribute:
    """One leaf of a declaration: what is asked for, and in which form.

    path: Python field names from the root, ("dimensions", "width").
    labels: what the model is shown at each level: the title, else the name with spaces.
    description: of the field, else of the closest nested model's field around it.
    examples: as text.
    kind: of the value; for lists, of an item. "model" only for lists.
    choices: texts of the members of a Literal or Enum, else ().
    choice_values: the Python values behind `choices`: a Literal's values, an Enum's members.
    is_list: whether the value is a list, set or tuple of such items.
    long: whether such a list is read in two phases: how many items, then all of them at once.
    fields: the leaves of an item that is a nested model, with paths and labels from the item on.
    nullable: whether None is allowed for this leaf or for a nested model around it.
    required: whether the leaf has no default; says nothing of the nested models around it.
    k_max: token budget named by the field, else by the closest nested model's field around it.
    omittable: whether the leaf, or a nested model around it, is nullable or has a default.
    constraints: (keyword, value) pairs, most of them JSON Schema's: see `schemax.constraints`.
    """

    path: tuple[str, ...]
    labels: tuple[str, ...]
    description: str | None
    examples: tuple[str, ...]
    kind: Kind
    choices: tuple[str, ...]
    choice_values: tuple[Any, ...]
    is_list: bool
    nullable: bool
    required: bool
    k_max: int | None
    omittable: bool = False
    constraints: Constraints = ()
    long: bool = False
    fields: tuple[Attribute, ...] = ()

    @property
    def name(self) -> str:
        """The dotted path, "dimensions.width"."""
        return ".".join(self.path)

    @property
    def label(self) -> str:
        """What the model is shown for the leaf itself."""
        return self.labels[-1]


@dataclass(frozen=True, slots=True)
class SchemaSettings:
    """Settings of a class. None leaves the choice of format or template to the call."""

    category: str
    format: Any = None
    template: Any = None


def attr(
    description: str | None = None,
    *,
    examples: Sequence[Any] = (),
    k_max: int | None = None,
    long: bool = False,
    unique: bool = False,
    **field: Any,
) -> Any:
    """A field with what the model should know about it; `field` goes to `pydantic.Field`.

    k_max: token budget of the value; of a list that is read in two phases, of each item.
    long: reads a list in two phases, how many items and then all of them at once, so that it takes
        as long as its longest item. Lists of nested models always are (docs/lists.md).
    unique: drops items of a list that equal an earlier one, after Pydantic's coercion and before
        `min_length` and `max_length` count them.

    Raises TypeError for `examples` that are a bare string, and for `k_max`, `long` or `unique`
    beside a callable `json_schema_extra`.
    """
    if isinstance(examples, (str, bytes)):
        raise TypeError(f"examples must be a list of examples: write [{examples!r}]")
    own = {"k_max": k_max, "long": long or None, "uniqueItems": unique or None}
    if own := {name: value for name, value in own.items() if value is not None}:
        extra = field.pop("json_schema_extra", None)
        if callable(extra):
            name = next(iter(own)).replace("uniqueItems", "unique")
            raise TypeError(f"{name} needs json_schema_extra to be a dict, not a callable")
        field["json_schema_extra"] = {**(extra or {}), **own}
    made = Field(description=description, examples=list(examples) or None, **field)
    if unique:
        made.metadata.insert(0, Distinct())
    return made


class AttrSchema(BaseModel):
    """Base of declarations: a Pydantic model whose fields are read from documents.

    Class keywords: `category` (default: the words of the class name), `format`, `template`.
    Subclasses inherit the last two. An optional field (`X | None`) without a default gets None.
    Raises SchemaError for a class keyword that neither schemax nor Pydantic knows.
    """

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)
    __schema_settings__: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(
        cls,
        *,
        category: str | None = None,
        format: Any = None,
        template: Any = None,
        **unknown: Any,
    ) -> None:
        super().__init_subclass__()
        if unknown:
            raise SchemaError(
                cls.__name__,
                None,
                f"unknown class keyword {', '.join(map(repr, unknown))}; schemax knows category, "
                "format and template, Pydantic its configuration",
            )
        if category is not None and (not isinstance(category, str) or _is_unprintable(category)):
            raise SchemaError(
                cls.__name__, None, f"category must be one line of text, not {category!r}"
            )
        own = {"category": category, "format": format, "template": template}
        cls.__schema_settings__ = {key: value for key, value in own.items() if value is not None}

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        # Every build of the class passes here with its annotations resolved, also those that had
        # to wait for a class defined later; earlier hooks see them as strings.
        if not cls.__pydantic_fields_complete__:
            cls.model_rebuild(raise_errors=False, _types_namespace={})
        for field in cls.__pydantic_fields__.values():
            if field.is_required() and allows_none(field.annotation):
                field.default = None
        return handler(source)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> dict[str, Any]:
        document = handler(core_schema)
        settings = settings_of(cls)
        own = {"format": settings.format, "template": settings.template}
        if "category" in cls.__schema_settings__:
            own["category"] = settings.category
        named = {key: value for key, value in own.items() if isinstance(value, str)}
        resolved = handler.resolve_ref_schema(document)
        resolved.update(named)
        # Pydantic invents titles; one that nobody chose must not become what the model is shown.
        for name, field in cls.model_fields.items():
            if field.title is None:
                shown = resolved.get("properties", {})
                shown.get(field.alias or name, shown.get(name, {})).pop("title", None)
        return document

    @classmethod
    def extract(cls, products: Iterable[str | Mapping[str, Any]], **options: Any) -> list[Self]:
        """Read these attributes from every product; `options` are those of `schemax.extract`.

        Raises what `schemax.extract` raises.
        """
        from schemax.extractor import extract

        return extract(products, cls, **options)

    @classmethod
    def from_json_schema(
        cls, document: Mapping[str, Any] | str, *, name: str | None = None
    ) -> type[Self]:
        """A class from a JSON Schema document, given as a mapping or as JSON text.

        `name` overrides the class name, which is otherwise made of the document's title.
        Raises SchemaError, naming the property, for what cannot be declared.
        """
        from schemax.json_schema import build_model

        return build_model(document, base=cls, name=name)


def settings_of(model: type[BaseModel]) -> SchemaSettings:
    """The settings of any Pydantic model. Raises SchemaError for anything else."""
    _require_model(model)
    model = model.__pydantic_generic_metadata__["origin"] or model
    declared = [vars(base).get("__schema_settings__", {}) for base in model.__mro__]
    inherited: dict[str, Any] = {}
    for settings in reversed(declared):
        inherited.update(settings)
    return SchemaSettings(
        category=declared[0].get("category") or words_of(model.__name__),
        format=inherited.get("format"),
        template=inherited.get("template"),
    )


def words_of(name: str) -> str:
    """The lower-case words of a class name or title: "PhoneCase" -> "phone case"."""
    spaced = re.sub(r"(?<=[^\W_A-Z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name)
    return " ".join(spaced.replace("_", " ").split()).lower()


def compile_attributes(model: type[BaseModel]) -> tuple[Attribute, ...]:
    """The leaves of a Pydantic model in declaration order, nested models flattened.

    Raises SchemaError, with class and dotted field, for what cannot be compiled.
    """
    _require_model(model)
    if issubclass(model, RootModel):
        raise SchemaError(
            model.__name__, None, "a RootModel has no named fields; declare a BaseModel with fields"
        )
    attributes = tuple(_leaves(model, _Outer(model.__name__)))
    try:
        model.model_rebuild(_types_namespace={})
    except (PydanticUndefinedAnnotation, PydanticUserError) as error:
        raise SchemaError(model.__name__, None, f"Pydantic cannot build it: {error}") from error
    return attributes


def _require_model(model: Any) -> None:
    if isinstance(model, type) and issubclass(model, BaseModel):
        return
    if isinstance(model, BaseModel):
        raise SchemaError(type(model).__name__, None, "is an instance; pass its class")
    raise SchemaError(
        getattr(model, "__name__", None) or type(model).__name__,
        None,
        "is not a class derived from pydantic.BaseModel (or schemax.AttrSchema)",
    )


@dataclass(frozen=True, slots=True)
class _Outer:
    """The way from the root to a nested model, and what its leaves take over from it."""

    root: str
    path: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    models: tuple[type[BaseModel], ...] = ()
    description: str | None = None
    k_max: int | None = None
    nullable: bool = False
    omittable: bool = False


def _leaves(model: type[BaseModel], outer: _Outer) -> Iterator[Attribute]:
    fields = _fields_of(model, outer)
    shown: dict[str, str] = {}
    for name, field in fields.items():
        path = (*outer.path, name)
        try:
            label = _label_of(name, field)
            twin = shown.setdefault(" ".join(label.split()).casefold(), name)
            if twin != name:
                raise Refusal(
                    f"shows the model the same name as {twin!r} ({label!r}); "
                    "give one of them another title"
                )
            shape = shape_of(annotation_of(field))
            long = _is_long(field, shape)
            inner = replace(
                outer,
                path=path,
                labels=(*outer.labels, label),
                models=(*outer.models, model),
                description=(field.description or "").strip() or outer.description,
                k_max=_k_max_of(field) or outer.k_max,
                nullable=outer.nullable or shape.nullable,
                omittable=outer.omittable or shape.nullable or not field.is_required(),
            )
            if shape.model is None:
                yield _leaf(field, shape, inner, long)
                continue
            if shape.model in inner.models:
                raise Refusal(
                    f"{shape.model.__name__} contains itself; a recursive model has no fixed set "
                    "of attributes: declare the levels that you need as classes of their own"
                )
            if shape.is_list:
                # Each item is there, whatever may stand in the place of the list.
                item = replace(inner, nullable=False, omittable=False)
                yield _leaf(field, shape, inner, long, tuple(_leaves(shape.model, item)))
                continue
        except Refusal as refusal:
            raise SchemaError(outer.root, ".".join(path), str(refusal)) from None
        yield from _leaves(shape.model, inner)


def _leaf(
    field: FieldInfo, shape: Shape, place: _Outer, long: bool, fields: tuple[Attribute, ...] = ()
) -> Attribute:
    if shape.kind is None and not fields:
        raise Refusal("allows nothing but None; name the type of its value, such as str | None")
    check_default(field)
    depth = len(place.path)
    return Attribute(
        path=place.path,
        labels=place.labels,
        description=place.description,
        examples=tuple(text_of(x) for x in field.examples or () if x is not None),
        kind=shape.kind or "model",
        choices=tuple(text for text, _ in shape.choices),
        choice_values=tuple(value for _, value in shape.choices),
        is_list=shape.is_list,
        nullable=place.nullable,
        required=field.is_required(),
        k_max=place.k_max,
        omittable=place.omittable,
        constraints=shape.constraints,
        long=long,
        fields=tuple(
            replace(leaf, path=leaf.path[depth:], labels=leaf.labels[depth:]) for leaf in fields
        ),
    )


def _fields_of(model: type[BaseModel], outer: _Outer) -> dict[str, FieldInfo]:
    dotted = ".".join(outer.path) or None
    if not model.__pydantic_complete__:
        try:
            model.model_rebuild(raise_errors=False, _types_namespace={})
        except (PydanticUndefinedAnnotation, PydanticUserError) as error:
            raise SchemaError(outer.root, dotted, f"Pydantic cannot build it: {error}") from error
    if not model.model_fields:
        raise SchemaError(
            outer.root, dotted, f"{model.__name__} has no fields; declare at least one attribute"
        )
    return model.model_fields


def _label_of(name: str, field: FieldInfo) -> str:
    if field.title is None:
        return name.replace("_", " ").strip()
    if _is_unprintable(field.title):
        raise Refusal(
            f"title {field.title!r} must be one line of visible text: the model is shown it"
        )
    return field.title.strip()


def _is_unprintable(text: str) -> bool:
    return not text.strip() or any(
        unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in text
    )


def _is_long(field: FieldInfo, shape: Shape) -> bool:
    extra = field.json_schema_extra
    declared = extra if isinstance(extra, dict) else {}
    for keyword, name in (("long", "long"), ("uniqueItems", "unique")):
        if (value := declared.get(keyword, False)) not in (True, False):
            raise Refusal(f"{name} must be True or False, not {value!r}")
        if value and not shape.is_list:
            raise Refusal(f"{name} is for lists; remove it")
    return shape.model is not None or declared.get("long", False) is True


def _k_max_of(field: FieldInfo) -> int | None:
    extra = field.json_schema_extra
    k_max = extra.get("k_max") if isinstance(extra, dict) else None
    if k_max is None or (type(k_max) is int and k_max > 0):
        return k_max
    raise Refusal(f"k_max must be a positive integer, not {k_max!r}")
