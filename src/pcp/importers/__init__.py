"""Programs from elsewhere: models of other libraries become Programs."""
