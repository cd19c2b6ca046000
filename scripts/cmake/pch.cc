// This file is compiled only to build the precompiled header.
