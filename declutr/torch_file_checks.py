"""Whether a file of tensors holds what torch wrote.

Since 1.6, `torch.save` writes a zip archive whose records have a CRC-32 each. `torch.load` does not
compare them.
"""

from __future__ import annotations

import zipfile
from pathlib import Path


def damage_in_torch_file(file: Path) -> str | None:
    """What is wrong with a zip archive of tensors, in words; `None` if all checksums are right.

    A file that was written without them (`torch.serialization.set_crc32_options(False)`) has zeros
    in their place, and passes.
    """
    with file.open("rb") as stream:
        try:
            with zipfile.ZipFile(stream) as records:
                if not any(record.CRC for record in records.infolist()):
                    return None
                broken = records.testzip()
        except Exception as error:  # a damaged file can raise nearly anything
            return str(error) or type(error).__name__
    return f"the record '{broken}' is not what its checksum says" if broken else None
