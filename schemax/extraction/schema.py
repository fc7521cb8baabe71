"""`AttrSchema`: the class that declarations derive from, with its ways to extract."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict
from pydantic.annotated_handlers import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, to_jsonable_python

from schemax.attributes import settings_of
from schemax.attributes.annotations import allows_none
from schemax.attributes.json_classes import STANDARD, Untitled, build_model, with_skip_marks
from schemax.attributes.settings import is_unprintable, words_in
from schemax.errors import SchemaError
from schemax.reading.cldr import check_language


def _plain(values: Any) -> Any:
    """An instance or a mapping in JSON types."""
    if isinstance(values, BaseModel):
        return values.model_dump(mode="json", exclude_unset=True)
    return to_jsonable_python(values)


class AttrSchema(BaseModel):
    """Base of declarations: a Pydantic model whose fields are read from documents.

    Class keywords: `category` (default: the words of the class name), `format`, `template`,
    `language`, which subclasses inherit, and `demonstrations`: (document, instance or mapping)
    pairs that models are shown which schemax did not train, as `examples=` shows them
    (docs/prompts.md). `language` is the documents' ("de", "pt-BR"), and holds for nested models
    too; see `attr`.
    An optional field (`X | None`) without a default gets None.
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
        language: str | None = None,
        demonstrations: Iterable[tuple[Any, Any]] | None = None,
        **unknown: Any,
    ) -> None:
        super().__init_subclass__()
        if unknown:
            raise SchemaError(
                cls.__name__,
                None,
                f"unknown class keyword {', '.join(map(repr, unknown))}; schemax knows category, "
                "format, template, language and demonstrations, Pydantic its configuration",
            )
        if category is not None and (not isinstance(category, str) or is_unprintable(category)):
            raise SchemaError(
                cls.__name__, None, f"category must be one line of text, not {category!r}"
            )
        if language is not None:
            try:
                check_language(language)
            except ValueError as error:
                raise SchemaError(cls.__name__, None, str(error)) from None
        own = {"category": category, "format": format, "template": template, "language": language}
        own["demonstrations"] = None if demonstrations is None else tuple(demonstrations)
        cls.__schema_settings__ = {key: value for key, value in own.items() if value is not None}

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        # Every build of the class passes here with its annotations resolved, also a build that
        # waited for a class defined later; earlier hooks see strings.
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
        own = {name: getattr(settings, name) for name in ("format", "template", "language")}
        if "category" in cls.__schema_settings__:
            own["category"] = settings.category
        named: dict[str, Any] = {key: v for key, v in own.items() if isinstance(v, str)}
        if settings.demonstrations:
            named["demonstrations"] = [
                {"text": document, "attributes": _plain(values)}
                for document, values in settings.demonstrations
            ]
        resolved = handler.resolve_ref_schema(document)
        resolved.update(named)
        # Pydantic invents titles; the model must not be shown an invented title.
        shown = resolved.get("properties", {})
        for name, field in cls.model_fields.items():
            if field.title is None:
                own = shown.get(field.alias or name, shown.get(name, {}))
                own.pop("title", None)
                if field.alias and field.alias in shown and words_in(field.alias) != words_in(name):
                    own["title"] = words_in(name)  # else the alias would be shown
        with_skip_marks(resolved, cls)
        return document

    @classmethod
    def extract(cls, products: Iterable[str | Mapping[str, Any]], **options: Any) -> list[Self]:
        """Reads these attributes from every product; `options` are those of `schemax.extract`.

        Raises what `schemax.extract` raises.
        """
        from schemax.extraction.one_call import extract  # imports the compiler

        return extract(products, cls, **options)

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """The declaration as a JSON Schema document (2020-12): `from_json_schema`'s inverse.

        Raises what Pydantic's `model_json_schema` raises for types without JSON.
        """
        return {"$schema": STANDARD, **cls.model_json_schema(schema_generator=Untitled)}

    @classmethod
    def from_json_schema(
        cls, document: Mapping[str, Any] | str, *, name: str | None = None
    ) -> type[Self]:
        """A class from a JSON Schema document, given as a mapping or as JSON text.

        `name` overrides the class name, which is otherwise made of the document's title.
        Raises SchemaError, naming the property, for a property that cannot be declared.
        """
        return build_model(document, base=cls, nested_base=AttrSchema, name=name)
