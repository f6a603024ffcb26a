"""What readers for models of AllenNLP's own kind share: text fields, and the number of the row."""

from typing import Optional

from allennlp.data import DatasetReader, Field, Instance, TokenIndexer, Tokenizer
from allennlp.data.fields import TextField
from allennlp.data.token_indexers import SingleIdTokenIndexer
from allennlp.data.tokenizers import WhitespaceTokenizer

from declutr.data.collation import number_field


class NumberedTextsReader(DatasetReader):
    """Instances of text fields, each with the number of its row if `with_ids`.

    A reader derived from it takes its share of the rows with `shard_iterable`, so that several
    workers or processes tokenize each row once.

    # Parameters

    tokenizer, token_indexers : any AllenNLP pair; the default is white space and single ids.
    with_ids : give each instance the field `ids` (int64).
    max_instances, serialization_dir : of AllenNLP.
    """

    def __init__(
        self,
        tokenizer: Optional[Tokenizer],
        token_indexers: Optional[dict[str, TokenIndexer]],
        with_ids: bool,
        max_instances: Optional[int],
        serialization_dir: Optional[str],
    ) -> None:
        super().__init__(
            max_instances=max_instances,
            manual_distributed_sharding=True,
            manual_multiprocess_sharding=True,
            serialization_dir=serialization_dir,
        )
        self._tokenizer = tokenizer or WhitespaceTokenizer()
        self._token_indexers = token_indexers or {"tokens": SingleIdTokenIndexer()}
        self._with_ids = with_ids

    def numbered(self, id: Optional[int]) -> dict[str, Field]:
        """The field `ids`, if it is wanted and there is a number."""
        return {"ids": number_field(id)} if self._with_ids and id is not None else {}

    def apply_token_indexers(self, instance: Instance) -> None:
        for field in instance.fields.values():
            if isinstance(field, TextField):
                field.token_indexers = self._token_indexers
