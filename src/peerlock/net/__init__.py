"""The shells around `peerlock.node`: asyncio, threads, registries, frames on sockets."""
