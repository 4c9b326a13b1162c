"""Data of a user's own: arrays, trees, a share for each agent, files, folders, Hugging Face, sources."""

import jax
import numpy as np
import pytest
from PIL import Image

from saddle_jax import data
from saddle_jax.data.dataset import DataError
from saddle_jax.data.sources import dataset_of

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(30, 4)), np.arange(30) % 3
IMAGES = RANDOM.integers(0, 256, (30, 6, 6, 3), np.uint8)


def test_arrays_with_classes():
    dataset = data.from_samples((X[:20], Y[:20]), (X[20:], Y[20:]), name="mine")
    assert (dataset.size, dataset.test_size, dataset.num_outputs) == (20, 10, 3)
    assert (dataset.objective, dataset.model) == ("classification", "mlp")
    assert dataset.train["inputs"].dtype == np.float32
    assert dataset.train["targets"].dtype == np.int32
    np.testing.assert_array_equal(dataset.labels, Y[:20])
    assert dataset.class_names == ("0", "1", "2")
    assert dataset.recipe is None
    assert dataset.input_shape == (4,)


def test_images_are_normalised_by_the_training_images():
    grey = IMAGES[..., 0]
    for images, channels in ((IMAGES, 3), (grey, 1)):
        dataset = data.from_samples((images[:20], Y[:20]), (images[20:], Y[20:]), class_names="abc")
        assert dataset.input_shape == (6, 6, channels)
        assert dataset.model == "cnn"
        seen = dataset.prepared({"inputs": dataset.train["inputs"]})["inputs"]
        np.testing.assert_allclose(np.asarray(seen).reshape(-1, channels).mean(axis=0), 0, atol=1e-3)


def test_numbers_to_predict():
    dataset = data.from_samples((X, X[:, :2]), (X, X[:, :2]))
    assert (dataset.objective, dataset.num_outputs, dataset.labels) == ("regression", 2, None)
    whole = data.from_samples((X, Y), (X, Y), objective="regression")
    assert (whole.objective, whole.labels) == ("regression", None)


def test_any_tree():
    samples = {"left": X, "right": {"a": Y, "b": X[:, 0]}}
    dataset = data.from_samples(samples, samples)
    assert jax.tree.structure(dataset.train) == jax.tree.structure(samples)
    assert dataset.labels is None


def test_a_list_is_divided_already():
    shares = [(X[:5], Y[:5]), (X[5:12], Y[5:12]), (X[12:], Y[12:])]
    dataset = data.from_samples(shares, (X, Y))
    np.testing.assert_array_equal(dataset.train["inputs"], X.astype(np.float32))
    partition = data.given_partition(dataset.agent_samples, 3, dataset.labels, dataset.size)
    assert partition.sizes.tolist() == [5, 7, 18]
    for agent, (start, end) in enumerate([(0, 5), (5, 12), (12, 30)]):
        own = partition.samples[agent][: partition.sizes[agent]]
        np.testing.assert_array_equal(own, np.arange(start, end))
    assert partition.class_counts.sum() == 30


def with_nan():
    broken = X.copy()
    broken[7, 2] = np.nan
    return broken


MISTAKES = {
    "lengths": (lambda: ((X, Y[:5]), (X, Y)), "train must have arrays of equal length above 0, got 5, 30"),
    "empty": (lambda: ((X[:0], Y[:0]), (X, Y)), "train must have arrays of equal length above 0, got 0"),
    "nan": (lambda: ((with_nan(), Y), (X, Y)), "train must have finite .* got another in inputs of sample 7"),
    "outside": (lambda: ((X, Y), (X, Y + 1)), "test must have targets of the 3 classes, 0 to 2, got 3"),
    "negative": (lambda: ((X, Y - 1), (X, Y)), "train must have targets of the 2 classes, 0 to 1, got -1"),
    "gaps": (lambda: ((X, Y * 1_000_000), (X, Y)), "at most as many as samples, 30, got 2,000,000; class"),
    "shapes": (lambda: ((X, Y), (X[:, :3], Y)), r"whose inputs are float32 \[4\], got float32 \[3\]"),
    "trees": (lambda: ({"a": X}, {"b": X}), "test must be a tree like train"),
    "scalar": (lambda: (3.0, (X, Y)), r"train must be \(inputs, targets\) or a tree of arrays"),
    "texts": (lambda: ((X, np.array(["a"] * 30)), (X, Y)), "train must have numbers, got <U1 in targets"),
    "large": (lambda: ((X, Y + 2**33), (X, Y)), "train must have whole numbers of 32 bits, got 8589934594"),
    "no agents": (lambda: ([], (X, Y)), "train must list the samples of at least one agent"),
    "an agent without": (lambda: ([(X, Y), (X[:0], Y[:0])], (X, Y)), r"train\[1\] must have arrays of equal"),
    "other shares": (lambda: ([(X, Y), (X[:, :2], Y)], (X, Y)), r"train\[1\] must be like train"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line(mistake):
    given, told = MISTAKES[mistake]
    with pytest.raises(DataError, match=told) as caught:
        data.from_samples(*given())
    assert "\n" not in str(caught.value)


def test_agents_that_do_not_fit_the_shares():
    with pytest.raises(ValueError, match="agents must be 2 for data that is divided so, got 3"):
        data.given_partition([[0], [1]], 3, None, 2)
    with pytest.raises(ValueError, match="every agent must have samples, got none for agent 1"):
        data.given_partition([[0], []], 2, None, 2)
    with pytest.raises(ValueError, match="sample numbers must be 0 to 1, got 0 to 2"):
        data.given_partition([[0], [2]], 2, None, 2)


@pytest.mark.parametrize(
    "names",
    ["train_inputs train_targets test_inputs test_targets", "x_train y_train x_test y_test"],
    ids=["ours", "Keras"],
)
def test_a_file_of_arrays(tmp_path, names):
    path = tmp_path / "mine.npz"
    np.savez(path, **dict(zip(names.split(), (X, Y, X[:9], Y[:9]), strict=True)))
    dataset = data.load(str(path))
    assert (dataset.name, dataset.size, dataset.test_size) == ("mine", 30, 9)
    np.testing.assert_array_equal(dataset.train["inputs"], X.astype(np.float32))


def test_files_that_cannot_be_used(tmp_path):
    np.savez(tmp_path / "other.npz", a=X)
    (tmp_path / "damaged.npz").write_bytes(b"no zip")
    np.savez(tmp_path / "pickle.npz", x_train=np.array([object()]), y_train=Y, x_test=X, y_test=Y)
    told = {
        "other.npz": "must have the arrays train_inputs, train_targets, test_inputs, test_targets, got a",
        "damaged.npz": "cannot be read",
        "pickle.npz": "cannot be read: it must hold arrays of numbers alone",
        "missing.npz": "dataset must be a file, got",
    }
    for name, line in told.items():
        with pytest.raises(DataError, match=line):
            data.load(str(tmp_path / name))


def write_images(folder, sizes=(6, 6), mode="RGB"):
    for split, count in (("train", 4), ("test", 2)):
        for label, name in enumerate(("cat", "dog")):
            (folder / split / name).mkdir(parents=True)
            for number in range(count):
                shape = (*sizes, 3) if mode == "RGB" else sizes
                pixels = np.full(shape, 40 * number + label, np.uint8)
                Image.fromarray(pixels).save(folder / split / name / f"{number}.png")


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_a_folder_of_images_by_class(tmp_path, mode):
    write_images(tmp_path, mode=mode)
    (tmp_path / "train" / "cat" / "notes.txt").write_text("not an image")
    dataset = data.load(str(tmp_path))
    assert dataset.class_names == ("cat", "dog")
    assert dataset.train["inputs"].shape == (8, 6, 6, 3 if mode == "RGB" else 1)
    assert dataset.train["targets"].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert dataset.train["inputs"][:, 0, 0, 0].tolist() == [0, 40, 80, 120, 1, 41, 81, 121]
    assert dataset.test_size == 4


def test_lists_and_truths():
    dataset = data.from_samples((X.tolist(), (Y > 0).tolist()), (X, Y > 0))
    np.testing.assert_array_equal(dataset.train["inputs"], X.astype(np.float32))
    np.testing.assert_array_equal(dataset.labels, Y > 0)


def test_pictures_of_other_kinds_are_refused(tmp_path):
    write_images(tmp_path / "deep")
    Image.fromarray(np.full((6, 6), 40_000, np.uint16)).save(tmp_path / "deep" / "train" / "cat" / "9.png")
    with pytest.raises(DataError, match=r"9\.png must have 8 bits a channel, got the mode I"):
        data.load(str(tmp_path / "deep"))
    write_images(tmp_path / "both", mode="L")
    Image.fromarray(np.zeros((6, 6, 3), np.uint8)).save(tmp_path / "both" / "train" / "dog" / "9.png")
    with pytest.raises(DataError, match=r"9\.png must be grey, as the first image is, got the mode RGB"):
        data.load(str(tmp_path / "both"))


def test_folders_that_cannot_be_used(tmp_path):
    with pytest.raises(DataError, match="must have the folders train and test"):
        data.load(str(tmp_path))
    write_images(tmp_path)
    Image.fromarray(np.zeros((5, 6, 3), np.uint8)).save(tmp_path / "train" / "dog" / "9.png")
    with pytest.raises(DataError, match=r"images of one size, got \[6, 6\] and, in .*9.png, \[5, 6\]"):
        data.load(str(tmp_path))
    (tmp_path / "train" / "dog" / "9.png").write_bytes(b"broken")
    with pytest.raises(DataError, match=r"9\.png cannot be read"):
        data.load(str(tmp_path))
    (tmp_path / "train" / "dog" / "9.png").unlink()
    (tmp_path / "test" / "bird").mkdir()
    with pytest.raises(DataError, match="must have classes of train alone, got bird"):
        data.load(str(tmp_path))


class Split:
    """What of a Hugging Face split is used, on arrays."""

    def __init__(self, columns, names=None):
        self._columns, self.column_names = columns, list(columns)
        self.features = {"label": type("ClassLabel", (), {"names": names})()}

    def with_format(self, kind):
        assert kind == "numpy"
        return self._columns


def test_splits_of_hugging_face():
    splits = {
        "train": Split({"image": list(IMAGES[:20]), "label": Y[:20]}, ["a", "b", "c"]),
        "test": Split({"image": list(IMAGES[20:]), "label": Y[20:]}),
    }
    dataset = dataset_of(splits, "theirs")
    assert dataset.class_names == ("a", "b", "c")
    np.testing.assert_array_equal(dataset.test["inputs"], IMAGES[20:])
    with pytest.raises(DataError, match="must have the split 'test', got train"):
        dataset_of({"train": splits["train"]}, "theirs")
    with pytest.raises(DataError, match="must have the column 'text', got image, label"):
        data.from_huggingface(splits, inputs="text")


def test_splits_of_hugging_face_themselves():
    datasets = pytest.importorskip("datasets", reason="the package of Hugging Face is not installed")
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b", "c"])}
    )

    def split(part):
        images = [Image.fromarray(image) for image in IMAGES[part]]
        return datasets.Dataset.from_dict({"image": images, "label": Y[part].tolist()}, features)

    splits = datasets.DatasetDict({"train": split(slice(20)), "test": split(slice(20, 30))})
    dataset = dataset_of(splits, "theirs")
    assert dataset.class_names == ("a", "b", "c")
    np.testing.assert_array_equal(dataset.train["inputs"], IMAGES[:20])


def test_what_is_no_data_is_one_line():
    with pytest.raises(DataError, match=r"dataset mine must be a data.Dataset, or samples .* got a int"):
        dataset_of(3, "mine")
