"""Programs for several devices: what each of them computes of one program, and which collectives join that."""
