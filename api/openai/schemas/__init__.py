"""What a client may send: request validation, one module a resource. Nothing here changes a request.

`chat.check`, `completions.check`, `embeddings.check` and `rerank.check` raise `InvalidRequest` or return a `View`.
"""
