"""What pydantic finds wrong with a field, in a sentence that says what is wanted."""

from typing import Final

from pydantic_core import ErrorDetails

WANTED: Final = {
    "string_type": "a string",
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "dict_type": "an object",
    "dict_attributes_type": "an object",
    "model_attributes_type": "an object",
    "none_required": "null",
}
"""What a type error asks for, by pydantic's name of the error."""
_SENTENCES: Final = {
    "missing": "is required",
    "union_tag_not_found": "is required",
    "union_tag_invalid": "must be one of {expected_tags}",
    "extra_forbidden": "is nothing that is known here: leave it out",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be more than {gt}",
    "multiple_of": "must be a multiple of {multiple_of}",
    "too_long": "has more than the {max_length} entries that are allowed",
    "too_short": "must not be empty",
    "string_too_long": "is longer than the {max_length} characters that are allowed",
    "string_too_short": "must not be empty",
    "string_pattern_mismatch": "must match {pattern}",
    "finite_number": "must be a finite number",
}


def sentence(param: str, detail: ErrorDetails) -> str:
    """What is wrong with the field `param`."""
    if detail["type"] in WANTED:
        return f"'{param}' must be {WANTED[detail['type']]}"
    form = _SENTENCES.get(detail["type"])
    if form is None:
        return f"'{param}' is not right: {detail['msg']}"
    return f"'{param}' {form.format_map(detail.get('ctx', {}))}"
