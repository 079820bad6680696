"""Similar endpoints and search: tokenizer, inverted index with tf-idf weights, ranking.

docs/similarity.md reports the quality on labelled services and the alternatives that were tried.
"""
