import io
import json
import os
import pathlib
import stat

import numpy as np
import pytest
from PIL import Image

from saddle_jax import data
from saddle_jax.data import cache, prepared

REAL = os.environ.get("TFDS_DATA_DIR")
needs_real = pytest.mark.skipif(
    not REAL or not pathlib.Path(REAL, "cifar10").is_dir(), reason="needs prepared datasets in TFDS_DATA_DIR"
)


@pytest.fixture(autouse=True)
def own_cache(request, tmp_path, monkeypatch):
    """Made-up datasets are not cached where real ones are."""
    if "real" not in request.node.name:
        monkeypatch.delenv("SADDLE_CACHE_DIR", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user-cache"))


def make_dataset(root, name, images, labels, splits=("train", "test"), variable=True):
    """Writes a prepared dataset as tfds does: array_record files of tf.train.Example, PNG inside."""
    from array_record.python.array_record_module import ArrayRecordWriter
    from tensorflow_datasets.proto import tf_example_pb2, tf_feature_pb2

    folder = pathlib.Path(root, name, "1.0.0")
    folder.mkdir(parents=True)
    stem = name.partition("/")[0]
    infos = []
    for split in splits:
        writer = ArrayRecordWriter(
            str(folder / f"{stem}-{split}.array_record-00000-of-00001"), "group_size:1"
        )
        for image, label in zip(images, labels, strict=True):
            buffer = io.BytesIO()
            Image.fromarray(image).save(buffer, "PNG")
            feature = tf_feature_pb2.Feature
            fields = {
                "image": feature(bytes_list=tf_feature_pb2.BytesList(value=[buffer.getvalue()])),
                "label": feature(int64_list=tf_feature_pb2.Int64List(value=[int(label)])),
            }
            example = tf_example_pb2.Example(features=tf_feature_pb2.Features(feature=fields))
            writer.write(example.SerializeToString())
        writer.close()
        template = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
        infos.append(
            {"name": split, "filepathTemplate": template, "shardLengths": [str(len(images))], "numBytes": "1"}
        )
    info = {
        "name": stem,
        "version": "1.0.0",
        "fileFormat": "array_record",
        "splits": infos,
        "moduleName": "made",
    }
    (folder / "dataset_info.json").write_text(json.dumps(info))
    shape = ["-1", "-1", "3"] if variable else [str(side) for side in images[0].shape]
    package = "tensorflow_datasets.core.features"
    features = {
        "pythonClassName": f"{package}.features_dict.FeaturesDict",
        "featuresDict": {
            "features": {
                "image": {
                    "pythonClassName": f"{package}.image_feature.Image",
                    "image": {"dtype": "uint8", "shape": {"dimensions": shape}, "encodingFormat": "png"},
                },
                "label": {
                    "pythonClassName": f"{package}.class_label_feature.ClassLabel",
                    "classLabel": {"numClasses": "3"},
                },
            }
        },
    }
    (folder / "features.json").write_text(json.dumps(features))
    (folder / "label.labels.txt").write_text("ant\nbee\ncow\n")
    return folder


def pictures(count, sizes, seed=0):
    random = np.random.default_rng(seed)
    return [random.integers(0, 256, size=(*sizes[i % len(sizes)], 3), dtype=np.uint8) for i in range(count)]


@pytest.fixture
def made(tmp_path):
    """A prepared dataset of seven 6x5 images called "bugs"."""
    images = pictures(7, [(6, 5)])
    folder = make_dataset(tmp_path / "tfds", "bugs", images, [0, 1, 2, 0, 1, 2, 0])
    return tmp_path / "tfds", folder, images


def test_any_prepared_dataset_is_read_once_and_then_mapped(made, monkeypatch):
    root, folder, images = made
    dataset = data.load("bugs", root)
    np.testing.assert_array_equal(dataset.train["inputs"], images)
    np.testing.assert_array_equal(dataset.test["targets"], [0, 1, 2, 0, 1, 2, 0])
    assert dataset.class_names == ("ant", "bee", "cow")
    assert dataset.input_shape == (6, 5, 3)
    assert dataset.recipe.augmentation == "none"
    assert dataset.recipe.mean == pytest.approx(np.mean(images, axis=(0, 1, 2)) / 255, abs=1e-3)
    assert (folder / "decoded" / "train" / "images.npy").is_file()
    monkeypatch.setattr(prepared, "open_split", lambda *_, **__: pytest.fail("decoded again"))
    again = data.load("bugs", root)
    assert isinstance(again.train["inputs"], np.memmap)
    np.testing.assert_array_equal(again.train["inputs"], images)


def test_the_environment_names_the_folder(made, monkeypatch):
    root, _, _ = made
    monkeypatch.setenv("TFDS_DATA_DIR", str(root))
    assert data.load("bugs").num_outputs == 3


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "record", "labels"])
def test_a_damaged_cache_is_made_anew(made, damage):
    root, folder, images = made
    data.load("bugs", root)
    target = folder / "decoded" / "train"
    file = target / {"record": "record.json", "labels": "labels.npy"}.get(damage, "images.npy")
    content = bytearray(file.read_bytes())
    if damage == "remove":
        file.unlink()
    elif damage == "truncate":
        file.write_bytes(content[:-5])
    else:
        content[-3] ^= 1
        file.write_bytes(content)
    np.testing.assert_array_equal(data.load("bugs", root).train["inputs"], images)
    np.testing.assert_array_equal(data.load("bugs", root).train["targets"], [0, 1, 2, 0, 1, 2, 0])


def test_changed_records_are_decoded_again(made):
    root, folder, _ = made
    data.load("bugs", root)
    for file in folder.glob("bugs-*"):
        file.unlink()
    other = pictures(7, [(6, 5)], seed=1)
    elsewhere = make_dataset(root / "other", "bugs", other, [2] * 7)
    for file in elsewhere.glob("bugs-*"):
        file.rename(folder / file.name)
    np.testing.assert_array_equal(data.load("bugs", root).train["inputs"], other)


def test_a_read_only_dataset_is_cached_in_the_users_folder(made, tmp_path):
    root, folder, images = made
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        np.testing.assert_array_equal(data.load("bugs", root).train["inputs"], images)
    finally:
        folder.chmod(0o755)
    assert not (folder / "decoded").exists()
    assert list((tmp_path / "user-cache" / "saddle_jax").glob("*bugs*/train/images.npy"))


def test_a_failure_while_decoding_leaves_nothing_behind(made, monkeypatch):
    root, folder, _ = made

    def fail(target, *_):
        (target / "images.npy").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(prepared, "write_images", fail)
    with pytest.raises(data.DataError, match=r"decoded data cannot be stored in .*No space left on device"):
        data.load("bugs", root)
    assert list((folder / "decoded").iterdir()) == []


def test_nowhere_to_write(made, monkeypatch):
    monkeypatch.setattr(cache, "_is_writable", lambda folder: False)
    with pytest.raises(data.DataError, match="may not be written to; set SADDLE_CACHE_DIR"):
        data.load("bugs", made[0])


def test_imagenette_is_stored_at_32(tmp_path):
    images = pictures(5, [(64, 64), (40, 50), (90, 33)])
    make_dataset(tmp_path, "imagenette/160px-v2", images, [0, 1, 2, 0, 1], splits=("train", "validation"))
    dataset = data.load("imagenette", tmp_path)
    assert dataset.train["inputs"].shape == (5, 32, 32, 3)
    assert dataset.input_shape == (32, 32, 3)
    # 90x33 becomes 87x32, of which the middle is rows 28 to 59: 27.5 goes to the even one
    resized = np.asarray(Image.fromarray(images[2]).resize((32, 87), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(dataset.train["inputs"][2], resized[28:60])


def as_torchvision(image, size):
    """Resize(size) and CenterCrop(size) of torchvision, written out: functional.resize, then center_crop."""
    height, width = image.shape[:2]
    short, long = (width, height) if width <= height else (height, width)
    new_short, new_long = size, int(size * long / short)
    new_width, new_height = (new_short, new_long) if width <= height else (new_long, new_short)
    picture = Image.fromarray(image)
    if (new_height, new_width) != (height, width):
        picture = picture.resize((new_width, new_height), Image.BILINEAR)
    top = round((new_height - size) / 2.0)
    left = round((new_width - size) / 2.0)
    return np.asarray(picture.crop((left, top, left + size, top + size)))


@pytest.mark.parametrize("size", [32, 256])
def test_pictures_are_resized_as_torchvision_does(size):
    # height and width: 4:3, odd margins, exact sizes, and sides whose product with the scale is near a half
    shapes = [(160, 213), (375, 500), (160, 237), (240, 160), (271, 400), (32, 47), (256, 300), (64, 64)]
    shapes += [(333, 160), (90, 33), (161, 160), (500, 334)]
    square = prepared.resize_and_crop(size)
    for image in pictures(len(shapes), shapes):
        np.testing.assert_array_equal(square(image), as_torchvision(image, size))


def test_files_of_the_old_geometry_are_not_served(tmp_path):
    images = pictures(2, [(160, 213)])
    make_dataset(tmp_path, "imagenette/160px-v2", images, [0, 1], splits=("train", "validation"))
    data.load("imagenette", tmp_path)
    (folder,) = tmp_path.glob("imagenette/160px-v2/*/decoded")
    assert {path.name for path in folder.iterdir()} == {"train-32-cut", "validation-32-cut"}
    for path in folder.iterdir():
        stale = path.rename(path.with_name(path.name.removesuffix("-cut")))  # as an older version left it
        np.save(stale / "images.npy", np.zeros((2, 32, 32, 3), np.uint8))
    dataset = data.load("imagenette", tmp_path)
    np.testing.assert_array_equal(dataset.train["inputs"][1], as_torchvision(images[1], 32))


def test_imagenet_is_streamed(tmp_path):
    images = pictures(9, [(300, 280), (256, 400), (64, 64)])
    labels = np.arange(9) % 3
    make_dataset(tmp_path, "imagenet2012", images, labels, splits=("train", "validation"))
    dataset = data.load("imagenet", tmp_path)
    np.testing.assert_array_equal(dataset.train["targets"], labels)
    assert dataset.train["inputs"].shape == (9, 256, 256, 3)
    assert dataset.input_shape == (224, 224, 3)
    square = np.stack([*map(prepared.resize_and_crop(256), images)])
    samples = np.arange(20).reshape(2, 10) % 9  # more than one thread decodes
    batch = dataset.train["inputs"][samples]
    np.testing.assert_array_equal(batch, square[samples])
    np.testing.assert_array_equal(dataset.train["inputs"].ahead(samples)(), batch)
    np.testing.assert_array_equal(dataset.test["inputs"][7:], square[7:])
    part = dataset.subset(5, seed=0)
    (original,) = np.flatnonzero((square == part.train["inputs"][2]).all(axis=(1, 2, 3)))
    assert part.train["inputs"].shape == (5, 256, 256, 3)
    assert part.train["targets"][2] == labels[original]
    assert dataset.recipe.for_evaluation(batch[0]).shape == (10, 224, 224, 3)


def spoil(made, what):
    root, folder, _ = made
    if what == "folder":
        return root / "nowhere", "cifar10"
    if what == "unknown":
        return root, "cifar11"
    if what == "record":
        file = folder / "bugs-train.array_record-00000-of-00001"
        content = bytearray(file.read_bytes())
        for position in range(len(content) // 4, 3 * len(content) // 4):
            content[position] ^= 0xFF
        file.write_bytes(content)
    elif what == "format":
        info = json.loads((folder / "dataset_info.json").read_text())
        (folder / "dataset_info.json").write_text(json.dumps({**info, "fileFormat": "tfrecord"}))
    elif what == "json":
        (folder / "dataset_info.json").write_text("{")
    elif what == "splits":
        info = json.loads((folder / "dataset_info.json").read_text())
        (folder / "dataset_info.json").write_text(json.dumps({**info, "splits": info["splits"][:1]}))
    else:
        (folder / what).unlink()
    return root, "bugs"


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (
            "folder",
            "'cifar10' is not prepared: looked in .*nowhere/cifar10; run 'saddle data prepare cifar10'",
        ),
        ("unknown", "did you mean 'cifar10'.*dataset must be one of digits, .* got 'cifar11'"),
        ("features.json", "only half prepared: features.json is missing"),
        (
            "bugs-test.array_record-00000-of-00001",
            "only half prepared: bugs-test.array_record-00000-of-00001 is",
        ),
        ("record", r"(record \d+ of )?bugs-train.* cannot be read"),
        ("format", "holds tfrecord files; prepare it again"),
        ("json", "dataset_info.json cannot be understood"),
        ("splits", "must have the splits train and test or validation, got train"),
    ],
)
def test_what_is_missing_or_damaged_is_told_in_one_line(made, what, message):
    root, name = spoil(made, what)
    with pytest.raises(data.DataError, match=message) as caught:
        data.load(name, root)
    assert "\n" not in str(caught.value)


def test_images_of_several_sizes_are_refused(tmp_path):
    make_dataset(tmp_path, "zoo", pictures(4, [(6, 5), (7, 5)]), [0, 1, 2, 0])
    with pytest.raises(
        data.DataError, match=r"images of one size, got \(6, 5, 3\) and, at record 1, \(7, 5, 3\)"
    ):
        data.load("zoo", tmp_path)


@needs_real
@pytest.mark.parametrize(
    ("name", "train", "test", "classes", "first"),
    [
        ("cifar10", 50_000, 10_000, 10, "airplane"),
        ("cifar100", 50_000, 10_000, 100, "apple"),
        ("imagenette", 9_469, 3_925, 10, None),
    ],
)
def test_real_datasets(name, train, test, classes, first):
    dataset = data.load(name)
    assert dataset.train["inputs"].shape == (train, 32, 32, 3)
    assert dataset.test["inputs"].shape == (test, 32, 32, 3)
    assert dataset.num_outputs == classes
    assert first is None or dataset.class_names[0] == first
    counts = np.bincount(dataset.train["targets"])
    if name != "imagenette":
        assert set(counts) == {train // classes}
    pixels = np.asarray(dataset.train["inputs"][::50], np.float64) / 255
    assert pixels.mean(axis=(0, 1, 2)) == pytest.approx(dataset.recipe.mean, abs=0.03)
