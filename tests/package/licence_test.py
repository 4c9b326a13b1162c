"""What a package must carry: the licence, the notice for other people's data, and whose paper it is."""

import importlib.metadata
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_an_installed_package_carries_the_licence_and_the_notice():
    installed = importlib.metadata.distribution("saddle_jax")
    assert installed.metadata["License-Expression"] == "Apache-2.0"
    for name in ("LICENSE", "NOTICE"):
        assert name in installed.metadata.get_all("License-File")
        (path,) = [path for path in installed.files if path.parts[-2:] == ("licenses", name)]
        assert path.read_text() == (ROOT / name).read_text()


def test_the_licence_is_whole_and_the_same_as_that_of_jax():
    (path,) = [path for path in importlib.metadata.files("jax") if path.name == "LICENSE"]
    assert (ROOT / "LICENSE").read_text().split() == path.read_text().split()


def test_every_embedded_dataset_is_in_the_notice():
    notice = (ROOT / "NOTICE").read_text()
    embedded = [path for path in ROOT.glob("saddle_jax/**/*") if path.suffix in (".npz", ".npy", ".csv")]
    assert embedded
    for path in embedded:
        assert path.relative_to(ROOT).as_posix() in notice
    assert "Alpaydin" in notice
    assert "CC BY 4.0" in notice


def test_readme_cites_the_paper():
    text = " ".join((ROOT / "README.md").read_text().split())
    assert "SADDLe: Sharpness-Aware Decentralized Deep Learning with Heterogeneous Data" in text
    for name in ("Choudhary, Sakshi", "Aketi, Sai Aparna", "Roy, Kaushik", "(WACV)"):
        assert name in text
