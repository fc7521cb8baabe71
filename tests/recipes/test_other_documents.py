"""Longer texts, with a given number of fields, are made of annotated titles."""

from __future__ import annotations

from recipes.other_documents import other_documents

ROWS = [
    {"category": "Tea", "text": "Green Tea", "attributes": {"Flavor": "Green"}},
    {"category": "Tea", "text": "Lipton Tea 20", "attributes": {"Brand": "Lipton", "Count": "20"}},
    {"category": "Shoes", "text": "Nike red", "attributes": {"Brand": "Nike", "Color": "red"}},
    {"category": "Shoes", "text": "Puma blue", "attributes": {"Brand": "Puma", "Color": "blue"}},
]


def test_the_most_frequent_fields_stay_and_categories_take_turns() -> None:
    made = list(other_documents(ROWS, num_fields=2, num_titles=1))
    assert [row["text"] for row in made] == ["Green Tea", "Nike red", "Lipton Tea 20", "Puma blue"]
    assert [row["attributes"] for row in made] == [
        {},
        {"Brand": "Nike", "Color": "red"},
        {"Brand": "Lipton"},
        {"Brand": "Puma", "Color": "blue"},
    ]


def test_a_text_holds_titles_of_its_category_and_the_values_of_the_first() -> None:
    made = list(other_documents(ROWS, num_fields=9, num_titles=3))
    assert made[1]["text"] == "Nike red. Puma blue. Nike red"
    assert made[1]["attributes"] == {"Brand": "Nike", "Color": "red"}
