"""What others made, brought in: weights from files."""

from pcp.importers.gpt2_file import WeightsFileMissing as WeightsFileMissing
from pcp.importers.gpt2_file import load_gpt2 as load_gpt2
from pcp.importers.gpt2_file import save_gpt2 as save_gpt2
