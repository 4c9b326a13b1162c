"""Data as others keep them: CIFAR's archives, LEAF's folders, datasets of PyTorch."""

import io
import json
import pickle
import tarfile

import numpy as np
import pytest

import saddle_jax as sj
from saddle_jax.cli.__main__ import main
from saddle_jax.data import DataError, from_samples, load, sources

RANDOM = np.random.default_rng(0)
PIXELS = RANDOM.integers(0, 256, (6, 20, 3072), np.uint8)  # of five batches and the test's
LABELS = RANDOM.integers(0, 10, (6, 20))
NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def put(folder, files, archive):
    """Writes files into a folder, or an archive of it."""
    if not archive:
        for name, content in files.items():
            folder.joinpath(name).write_bytes(content)
        return folder
    path = folder / "cifar.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"cifar-10/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def pickled(number):
    return pickle.dumps({b"data": PIXELS[number], b"labels": LABELS[number].tolist()}, protocol=2)


def binary(number):
    return np.concatenate([LABELS[number].astype(np.uint8)[:, None], PIXELS[number]], 1).tobytes()


@pytest.mark.parametrize("archive", [True, False])
@pytest.mark.parametrize("kind", ["pickled", "binary"])
def test_cifar10_from_its_authors_files(kind, archive, tmp_path, capsys):
    ending, write = ("", pickled) if kind == "pickled" else (".bin", binary)
    names = [*(f"data_batch_{n}{ending}" for n in range(1, 6)), f"test_batch{ending}"]
    files = {name: write(number) for number, name in enumerate(names)}
    files |= (
        {"batches.meta": pickle.dumps({b"label_names": [n.encode() for n in NAMES]}, protocol=2)}
        if kind == "pickled"
        else {"batches.meta.txt": "\n".join([*NAMES, "", ""]).encode()}
    )
    source, folder = put(tmp_path, files, archive), tmp_path / "data"
    assert main(["saddle", "data", "prepare", "cifar10", f"--from={source}", f"--data_dir={folder}"]) == 0
    dataset = load("cifar10", folder)
    assert dataset.class_names == tuple(NAMES)
    assert dataset.train["inputs"].shape == (100, 32, 32, 3)
    assert dataset.recipe.augmentation == "flip_crop"  # the paper's, and its mean
    # Row by row, red, green, blue, as the authors' page says.
    assert np.array_equal(dataset.test["inputs"][3, 1, 2], PIXELS[5, 3].reshape(3, 32, 32)[:, 1, 2])
    assert np.array_equal(dataset.train["targets"], LABELS[:5].reshape(-1))
    assert main(["saddle", "data", "list", f"--data_dir={folder}"]) == 0
    assert f"prepared: {folder / 'cifar10.npz'}" in capsys.readouterr().out


def test_cifar100_has_the_fine_labels(tmp_path):
    coarse = np.full((20, 1), 7, np.uint8)
    rows = np.concatenate([coarse, 9 * LABELS[0].astype(np.uint8)[:, None], PIXELS[0]], 1).tobytes()
    put(
        tmp_path,
        {
            "train.bin": rows,
            "test.bin": rows,
            "fine_label_names.txt": b"\n".join(b"c%d" % n for n in range(100)),
        },
        False,
    )
    assert (
        main(["saddle", "data", "prepare", "cifar100", f"--from={tmp_path}", f"--data_dir={tmp_path}"]) == 0
    )
    dataset = load("cifar100", tmp_path)
    assert np.array_equal(dataset.train["targets"], 9 * LABELS[0])
    assert len(dataset.class_names) == 100


class Evil:
    def __reduce__(self):
        return print, ("executed",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps(Evil()), "builtins.print is no array"),
        (pickle.dumps({b"data": PIXELS[0]}), "images of 32x32 with a label each"),
        (b"no pickle", "cannot be read as arrays alone"),
    ],
)
def test_archives_are_not_trusted(content, message, tmp_path, capsys):
    names = [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]
    source = put(tmp_path, dict.fromkeys(names, content), True)
    assert main(["saddle", "data", "prepare", "cifar10", f"--from={source}", f"--data_dir={tmp_path}"]) != 0
    told = capsys.readouterr()
    assert message in told.err
    assert "executed" not in told.out


def test_other_files_are_refused(tmp_path, capsys):
    for name, source in {"cifar10": put(tmp_path, {"else": b""}, True), "digits2": tmp_path}.items():
        assert main(["saddle", "data", "prepare", name, f"--from={source}"]) != 0
    told = capsys.readouterr().err
    assert "must have the files data_batch_1" in told
    assert "must be given for cifar10 or cifar100 alone, got 'digits2'" in told


def leaf(folder, users):
    for split in ("train", "test"):
        folder.joinpath(split).mkdir(parents=True)
        halves = [users[:2], users[2:]]
        for number, half in enumerate(halves):
            content = {
                "users": [user for user, *_ in half],
                "num_samples": [len(y) for _, _, y in half],
                "user_data": {user: {"x": x, "y": y} for user, x, y in half},
            }
            folder.joinpath(split, f"all_{number}.json").write_text(json.dumps(content))


def test_leafs_writers_are_agents(tmp_path):
    images = RANDOM.random((3, 5, 784)).round(3)
    leaf(tmp_path, [(f"w{n}", images[n, : n + 2].tolist(), [n, 61, 4, 5, 6][: n + 2]) for n in range(3)])
    dataset = load(f"leaf('{tmp_path}')")
    assert dataset.input_shape == (28, 28, 1)
    assert len(dataset.class_names) == 62
    assert [len(share) for share in dataset.agent_samples] == [2, 3, 4]
    own = dataset.train["inputs"][dataset.agent_samples[1]]
    assert np.allclose(own.reshape(3, 784), images[1, :3])
    fewer = load(f"leaf('{tmp_path}', agents=2)")
    assert [len(share) for share in fewer.agent_samples] == [5, 4]
    with pytest.raises(sj.ArgumentError, match="at most 3, the number of clients"):
        load(f"leaf('{tmp_path}', agents=4)")


def test_leafs_lines_are_trained_on(tmp_path):
    line = "the quality of mercy is not strained; it droppeth as the gentle rain from heaven"
    leaf(tmp_path / "leaf", [(f"r{n}", [line] * 4, list("abcé")) for n in range(3)])
    dataset = load(f"leaf('{tmp_path / 'leaf'}')")
    inputs, targets = dataset.train["inputs"], dataset.train["targets"]
    assert np.array_equal(inputs[:, 1:], targets[:, :-1])
    letters = sj.data.leaf.LETTERS
    assert "".join(letters[code] for code in inputs[0]) == line
    assert [letters[code] for code in targets[:4, -1]] == ["a", "b", "c", "}"]
    settings = ["--agents=3", "--epochs=1", "--batch_size=2", f"--workdir={tmp_path / 'run'}"]
    assert main(["saddle", "train", f"--dataset=leaf('{tmp_path / 'leaf'}')", *settings]) == 0


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"users": ["a"]}, "must be as LEAF writes it"),
        ({"users": ["a"], "user_data": {"a": {"x": [[0.0] * 784], "y": []}}}, "as many x as y"),
        ({"users": ["a"], "user_data": {"a": {"x": [[0.0] * 783], "y": [1]}}}, "images of 28x28"),
        ({"users": ["a"], "user_data": {"a": {"x": [[0.0] * 784], "y": [62]}}}, "classes must be 0 to 61"),
        ({"users": ["a"], "user_data": {"a": {"x": ["ab", "a"], "y": ["c", "c"]}}}, "lines of one length"),
        ({"users": [], "user_data": {}}, "users with samples"),
    ],
)
def test_damaged_leaf_folders_are_refused(damage, message, tmp_path):
    for split in ("train", "test"):
        tmp_path.joinpath(split).mkdir()
        tmp_path.joinpath(split, "all.json").write_text(json.dumps(damage))
    with pytest.raises(sj.ArgumentError, match=message):
        load(f"leaf('{tmp_path}')")


# ---- datasets of PyTorch ----


def torch_data():
    return pytest.importorskip("torch.utils.data", reason="needs the extra torch")


def test_datasets_of_torch_are_read_once():
    data = torch_data()
    import torch

    images = torch.rand(40, 3, 8, 6)

    class Images(data.Dataset):
        classes = ("cat", "dog")

        def __len__(self):
            return 40

        def __getitem__(self, number):
            return images[number], number % 2

    dataset = from_samples(data.Subset(Images(), range(30)), data.Subset(Images(), range(30, 40)))
    assert dataset.class_names == ("cat", "dog")
    assert dataset.input_shape == (8, 6, 3)
    assert np.array_equal(dataset.train["inputs"], images[:30].permute(0, 2, 3, 1).numpy())
    assert dataset.test["targets"].tolist() == [0, 1] * 5
    divided = [data.Subset(Images(), range(10)), data.Subset(Images(), range(10, 30))]
    shares = from_samples(divided, Images()).agent_samples
    assert [len(share) for share in shares] == [10, 20]


@pytest.mark.parametrize("kind", ["random", "loader", "single", "sizes"])
def test_datasets_of_torch_that_are_no_arrays_are_refused(kind):
    data = torch_data()
    import torch

    class Other(data.Dataset):
        def __len__(self):
            return 20

        def __getitem__(self, number):
            x = torch.zeros(3, 8, 8 + number if kind == "sizes" else 8)
            if kind == "random" and torch.rand(()) < 0.5:
                x = x + 1
            return x if kind == "single" else (x, 0)

    train = data.DataLoader(Other()) if kind == "loader" else Other()
    messages = {
        "random": "draws random numbers: leave it out, and use augmentation=flip_crop",
        "loader": "Dataset with a length, got a DataLoader",
        "single": "must have pairs",
        "sizes": "inputs of one size",
    }
    with pytest.raises(DataError, match=messages[kind]):
        from_samples(train, train)


def test_pictures_stay_bytes_and_are_normalised():
    data = torch_data()
    image = pytest.importorskip("PIL.Image")

    class Pictures(data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, number):
            return image.new("RGB", (6, 8), (50 * number, 0, 0)), number % 2

    dataset = from_samples(Pictures(), Pictures())
    assert dataset.train["inputs"].dtype == np.uint8
    assert dataset.train["inputs"].shape == (4, 8, 6, 3)
    assert dataset.recipe is not None


def test_an_opened_run_reads_leafs_folder_where_the_user_says():
    assert sources.place_of("leaf('/data/femnist', agents=3)") == "/data/femnist"
    assert sources.place_of("leaf(path='./here')") == "./here"
    assert sources.at_place("leaf('/data/femnist', agents=3)", "./mine") == "leaf(path='./mine', agents=3)"
    assert sources.place_of("./folder") == "./folder"
    assert sources.at_place("./folder", "../folder") == "../folder"
    assert {
        sources.place_of(name) for name in ("digits", "convex(dimension=5)", "cifar10", "my.py:data")
    } == {None}
