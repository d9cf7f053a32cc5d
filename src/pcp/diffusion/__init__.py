"""Images from models: pipelines in folders, in runs, and imported, and what samples them."""
