import pytest

from hive_core.daemon import main


@pytest.mark.parametrize("argv", [["restore"], ["run", "hive.tar"], ["check", "hive.tar"]])
def test_restore_takes_a_file_and_nothing_else_does(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    assert "restore takes a file, the other commands take none" in capsys.readouterr().err
