"""docs/architecture.svg is what its script draws, and its names are those of the real parts."""

from pathlib import Path
from xml.etree import ElementTree

from allennlp.common import Params
from allennlp.data import DatasetReader, Vocabulary
from allennlp.models import Model
from allennlp.modules import Seq2VecEncoder, TextFieldEmbedder, TokenEmbedder

import declutr.plugin  # noqa: F401
from declutr.components import registered_name
from declutr.models.views import Views
from declutr.objectives import Objective
from tests.conftest import script

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "architecture.svg"


DRAWING = script("draw_architecture")


def test_the_picture_is_what_the_script_draws() -> None:
    told = "Draw it anew: python scripts/draw_architecture.py"
    assert PICTURE.read_text(encoding="utf-8") == DRAWING.picture(), told


def test_nothing_is_outside_the_picture() -> None:
    svg = ElementTree.parse(PICTURE).getroot()
    _, _, width, height = (float(number) for number in svg.attrib["viewBox"].split())
    for element in svg.iter():
        if "x" in element.attrib and "width" not in element.attrib:
            length = 3.4 * len("".join(element.itertext()))  # half of it, in letters of 12 pixels
            middle = float(element.attrib["x"])
            assert length < middle < width - length, "".join(element.itertext())
            assert 0 < float(element.attrib["y"]) < height


def test_the_model_of_the_recipe_has_these_parts(checkpoint: Path) -> None:
    names = DRAWING.names()
    params = Params.from_file(DRAWING.RECIPE, ext_vars={"TRANSFORMER_MODEL": str(checkpoint)})
    model = Model.from_params(params["model"], vocab=Vocabulary())
    embedder = model._text_field_embedder
    for key, base, part in (
        ("model", Model, model),
        ("views", Views, model._make_views),
        ("field_embedder", TextFieldEmbedder, embedder),
        ("embedder", TokenEmbedder, embedder._token_embedders["tokens"]),
        ("pooler", Seq2VecEncoder, model._seq2vec_encoder),
        ("loss", Objective, model._loss),
    ):
        assert names[key] == registered_name(base, type(part))
    assert model._head is None and model._feedforward is None
    assert names["reader"] in DatasetReader.list_available()
