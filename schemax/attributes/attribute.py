"""`Attribute`: what is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from schemax.attributes.after import Path
from schemax.attributes.constraints import Constraints
from schemax.attributes.field_type import FieldType, Kind
from schemax.scalars import SCALARS, Scalar


@dataclass(frozen=True, slots=True)
class Attribute:
    """A leaf of a declaration: what is asked for, and in which form.

    path: Python field names from the root, ("dimensions", "width").
    labels: what the model is shown at each level: the title, else the name with spaces.
    description: of the field, else of the closest nested model's field around it.
    examples: as text.
    kind: of the value; for lists, of an item. "model" only for lists.
    choices: texts of the members of a Literal or Enum, else ().
    choice_values: the Python values behind `choices`: a Literal's values, an Enum's members.
    is_list: whether the value is a list, set or tuple of such items.
    two_phase: whether such a list is read in two phases: how many items, then all of them at once.
    fields: the leaves of an item that is a nested model, with paths and labels from the item on.
    nullable: whether None is allowed for this leaf or for a nested model around it.
    required: whether the leaf has no default; says nothing of the nested models around it.
    k_max: token budget named by the field, else by the closest nested model's field around it.
    omittable: whether the leaf, or a nested model around it, is nullable or has a default.
    constraints: (keyword, value) pairs, most of them JSON Schema's: see `attributes.constraints`.
    unit: of a number, of which the description tells.
    strict: whether the leaf, or a nested model around it, takes literals alone.
    extractive: whether its texts must stand in the document, as the leaf or a nested model around
        it says; None leaves that to the decoding.
    members: of a "union", the scalars that a value may be; positions: of a tuple of different
        types, what stands at each place.
    is_mapping: whether the list is the pairs of a dict, whose `fields` are "key" and "value".
    is_one_or_several: whether one item of the list is given as it is, without the list.
    kinds: of what asks which model of a union is meant, the models of its choices, in order.
    after: paths of the leaves whose values stand before this one's key, in order.
    misfits: what a user should know of its default and examples. Values do not depend on it.
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
    members: tuple[FieldType, ...] = ()
    positions: tuple[FieldType, ...] = ()
    is_mapping: bool = False
    is_one_or_several: bool = False
    kinds: tuple[type[Any], ...] = field(default=(), repr=False, compare=False)
    after: tuple[Path, ...] = ()
    misfits: tuple[str, ...] = field(default=(), repr=False)

    @property
    def is_kind(self) -> bool:
        """True if it asks which model of a union is meant."""
        return bool(self.kinds)

    @property
    def scalar(self) -> Scalar | None:
        """The scalar of its kind; None for unions, whose variants have one each, and models."""
        return SCALARS.get(self.kind)

    @property
    def is_text(self) -> bool:
        """True if its values are words of the document."""
        return self.scalar is not None and self.scalar.is_text

    @property
    def is_number(self) -> bool:
        return self.scalar is not None and self.scalar.is_number

    @property
    def is_sure(self) -> bool:
        """True if its slot writes one of known words, a choice or yes and no."""
        return self.scalar is not None and self.scalar.is_sure

    @property
    def variants(self) -> tuple[Attribute, ...]:
        """The scalars of a union, each as an attribute; of anything else the attribute itself."""
        return tuple(map(self._as, self.members)) or (self,)

    @property
    def places(self) -> tuple[Attribute, ...]:
        """The places of a tuple of different types, each as an attribute; else ()."""
        return tuple(map(self._as, self.positions))

    def _as(self, one: FieldType) -> Attribute:
        return replace(
            self,
            kind=one.kind or self.kind,
            choices=tuple(text for text, _ in one.choices),
            choice_values=tuple(value for _, value in one.choices),
            constraints=one.constraints,
            members=one.members,
            positions=(),
        )

    @property
    def name(self) -> str:
        """The dotted path, "dimensions.width"."""
        return self.path[0] if len(self.path) == 1 else ".".join(self.path)

    @property
    def label(self) -> str:
        """The name that the model is shown for the leaf itself."""
        return self.labels[-1]
