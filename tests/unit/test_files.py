"""Files: how they are replaced, and JSON that cannot be read."""

import pytest

from ov_specdec.errors import ModelError
from ov_specdec.files import keep_section, read_json, read_section, replacing


def test_two_that_write_a_file_at_once_do_not_spoil_each_others(tmp_path):
    file = tmp_path / "new" / "file"
    with replacing(file) as first:
        with replacing(file) as second:
            second.write_text("second")
            first.write_text("first")
        assert file.read_text() == "second"
    assert file.read_text() == "first"
    assert list(file.parent.iterdir()) == [file]


def test_an_error_leaves_what_was_there(tmp_path):
    file = tmp_path / "file"
    file.write_text("old")
    with pytest.raises(KeyboardInterrupt), replacing(file) as partial:
        partial.write_text("half")
        raise KeyboardInterrupt
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_replaced_file_has_the_permissions_of_a_new_one(tmp_path):
    (tmp_path / "plain").touch()
    with replacing(tmp_path / "replaced") as partial:
        partial.touch()
    assert (tmp_path / "replaced").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_json_may_begin_with_a_byte_order_mark(tmp_path):
    (tmp_path / "config.json").write_text('{"a": 1}', encoding="utf-8-sig")
    assert read_json(tmp_path / "config.json") == {"a": 1}


@pytest.mark.parametrize("content", ["{", "[]", "[" * 100_000])
def test_json_that_is_no_object_is_refused(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelError, match=r"config\.json .*: export the model again"):
        read_json(tmp_path / "config.json")


@pytest.mark.parametrize("damage", ["", "[]", "{", '{"version": 1, "sections": 3}', "\udcff"])
def test_a_section_leaves_the_others_and_replaces_a_damaged_record(tmp_path, damage):
    path = tmp_path / "record.json"
    keep_section(path, "a", 1)
    keep_section(path, "b", 2)
    assert [read_section(path, name, int) for name in "ab"] == [1, 2]
    path.write_text(damage, encoding="utf-8", errors="surrogateescape")
    keep_section(path, "b", 3)
    assert [read_section(path, name, int) for name in "ab"] == [None, 3]
