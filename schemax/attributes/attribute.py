"""`Attribute`, a leaf of a declaration."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from schemax.attributes.field_type import Constraints, FieldPath, FieldType, Kind, limits_of
from schemax.reading.kinds import SCALARS, Scalar

MOST_ITEMS = 64
"""The most items of a list without max_length."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """A leaf of a declaration: a value to read, with its name, type and constraints.

    path: Python field names from the root, ("dimensions", "width").
    labels: the names that the model is shown, by level: the title, else the name with spaces.
    description: the field's, else the closest enclosing field's.
    examples: the field's examples, as texts.
    kind: the kind of the value, or of a list's items; "model" only for lists.
    choices: texts of the members of a Literal or Enum, else ().
    choice_values: the Python values behind `choices`: a Literal's values, an Enum's members.
    is_list: whether the value is a list, set or tuple of items of the kind.
    two_phase: whether the list is read in two phases: its length, then all items at once.
    fields: the leaves of an item that is a nested model, with paths and labels from the item on.
    nullable: whether None is allowed for the leaf or for an enclosing model.
    required: whether the leaf itself has no default.
    k_max: the token budget of the field, else of the closest enclosing field.
    omittable: whether the leaf, or an enclosing model, is nullable or has a default.
    constraints: (keyword, value) pairs, see `Constraints`.
    unit: the unit of a number, which the description names.
    strict: whether the leaf, or an enclosing model, takes literals alone.
    extractive: whether texts must stand in the document, as declared for the leaf or an enclosing
        model; None leaves the choice to the decoding.
    language: the documents' language, by its CLDR name; None if unknown.
    members: the scalars of a "union".
    positions: the types of a tuple of different types, by place.
    is_mapping: whether the list holds the pairs of a dict; `fields` are then "key" and "value".
    is_one_or_several: whether a single item is given as itself, without the list.
    discriminated: the models that the choices of a discriminator stand for, in order.
    after: paths of the leaves whose values precede this leaf's key, in order.
    misfits: warnings about the default and examples; values do not depend on them.
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
    two_phase: bool = False
    fields: tuple[Attribute, ...] = ()
    unit: str | None = None
    strict: bool = False
    extractive: bool | None = None
    language: str | None = None
    members: tuple[FieldType, ...] = ()
    positions: tuple[FieldType, ...] = ()
    is_mapping: bool = False
    is_one_or_several: bool = False
    discriminated: tuple[type[Any], ...] = field(default=(), repr=False, compare=False)
    after: tuple[FieldPath, ...] = ()
    misfits: tuple[str, ...] = field(default=(), repr=False)

    @property
    def is_discriminator(self) -> bool:
        """True if the leaf names the member of a union of models."""
        return bool(self.discriminated)

    @property
    def scalar(self) -> Scalar | None:
        """The scalar of the kind; None for models, and for unions, whose variants have scalars."""
        return SCALARS.get(self.kind)

    @property
    def is_text(self) -> bool:
        """True if values consist of words of the document."""
        return self.scalar is not None and self.scalar.is_text

    @property
    def is_number(self) -> bool:
        return self.scalar is not None and self.scalar.is_number

    @property
    def is_sure(self) -> bool:
        """True if the slot's texts are known: choices, yes and no."""
        return self.scalar is not None and self.scalar.is_sure

    @property
    def takes_texts(self) -> bool:
        """True if any text may stand for a value: of a number, a date, or a list in one slot.

        Texts do not stand for choices and booleans: a slot writes a known text (docs/typed.md).
        """
        is_open = self.scalar is not None and self.scalar.is_open
        return not self.strict and (is_open or self.is_list)

    @property
    def is_typed(self) -> bool:
        """True if the type or a pattern rules out most texts."""
        if self.members:
            return all(variant.is_typed for variant in self.variants)
        return not self.is_text or any(keyword == "pattern" for keyword, _ in self.constraints)

    @property
    def may_be_null(self) -> bool:
        """True if null gives the field None, its default or that of a nested model around it, or an
        empty list. Any other required field needs a value."""
        return self.omittable or (self.is_list and self.num_items[0] == 0)

    @property
    def num_items(self) -> tuple[int, int]:
        """The fewest and the most items: min_length and max_length, by default 0 and 64."""
        fewest, most = limits_of(self.constraints, "Items")
        return fewest, max(fewest, MOST_ITEMS) if most is None else most

    @property
    def variants(self) -> tuple[Attribute, ...]:
        """The scalars of a union, each as an attribute; for other kinds the attribute itself."""
        return tuple(map(self._as, self.members)) or (self,)

    @property
    def places(self) -> tuple[Attribute, ...]:
        """The places of a tuple of different types, each as an attribute; else ()."""
        return tuple(map(self._as, self.positions))

    def _as(self, field_type: FieldType) -> Attribute:
        return replace(
            self,
            kind=field_type.kind or self.kind,
            choices=tuple(text for text, _ in field_type.choices),
            choice_values=tuple(value for _, value in field_type.choices),
            constraints=field_type.constraints,
            members=field_type.members,
            positions=(),
        )

    @property
    def name(self) -> str:
        """The dotted path, such as "dimensions.width"."""
        return self.path[0] if len(self.path) == 1 else ".".join(self.path)

    @property
    def label(self) -> str:
        """The name of the leaf itself that the model is shown."""
        return self.labels[-1]
