"""What a plan costs: planning it, calling it, predicting its times; and what each kernel gains."""
