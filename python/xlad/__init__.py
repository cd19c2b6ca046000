"""Client of the xlad training daemon: writes job directories from JAX functions."""

from xlad.export import MeshSpec, export

__all__ = ["MeshSpec", "export"]
