// Command package writes a release: archives with static programs, .deb and .rpm packages, an OCI image, a software bill
// of materials, and checksums.
//
//	package -root ../.. -out ../../bin/package -version v1.0.0
//
// The result depends on the sources, the version, the version of Go and the time of the commit only, so that everybody
// who builds a release gets the same bytes. Besides Go and git it needs nothing that is not in the module cache.
//
//   - files has what packages install beside the programs: the unit, the sample configuration, the maintainer's scripts;
//   - Dockerfile describes the image; kubernetes has manifests that run it.
//
// Its tests install the packages, run what they contain, and decode the manifests. It is a module of its own, so that
// the product does not depend on the libraries that it needs.
package main
