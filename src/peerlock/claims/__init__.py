"""What the papers claim, put to the test. One module a paper, one function a claim; `catalogue` knows them all."""
