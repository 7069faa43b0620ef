import pytest

from hive_core.domain.sizes import parse_size


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("0k", 0, id="nothing"),
        pytest.param("64k", 64 * 1024, id="k"),
        pytest.param("256m", 256 * 1024**2, id="m"),
        pytest.param("1g", 1024**3, id="g"),
        pytest.param("999999999g", 999_999_999 * 1024**3, id="nine-digits"),
    ],
)
def test_a_size_is_read_as_bytes(text: str, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "256", "m", "256M", "256mb", "1.5g", "-1g", "+1g", " 1g", "1g ", "1g\n", "1 g", "0x10k", "1e3k",
     "1_0k", "9" * 5000 + "g", "\N{ARABIC-INDIC DIGIT ONE}g"],
)  # fmt: skip
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="is no size: a whole number and one of k, m, g") as caught:
        parse_size(text)
    assert len(str(caught.value)) < 200
