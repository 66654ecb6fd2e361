package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

// billOfMaterials writes what the programs consist of, as their build information says: the modules, and the standard
// library. Each program is a component with the checksum of its file.
func (r *release) billOfMaterials() error {
	libraries := map[string]cyclonedx.Component{}
	var programs []cyclonedx.Component
	var dependencies []cyclonedx.Dependency
	for _, p := range r.platforms {
		for _, name := range p.programs() {
			program, uses, err := r.component(p, name)
			if err != nil {
				return err
			}
			var refs []string
			for _, library := range uses {
				libraries[library.BOMRef] = library
				refs = append(refs, library.BOMRef)
			}
			programs = append(programs, program)
			dependencies = append(dependencies, cyclonedx.Dependency{Ref: program.BOMRef, Dependencies: &refs})
		}
	}
	for _, ref := range slices.Sorted(maps.Keys(libraries)) {
		programs = append(programs, libraries[ref])
	}
	bill := cyclonedx.NewBOM()
	bill.Metadata = &cyclonedx.Metadata{
		Timestamp: r.time.Format(time.RFC3339),
		Component: &cyclonedx.Component{BOMRef: "quorumlock", Type: cyclonedx.ComponentTypeApplication, Name: "quorumlock", Version: r.version},
	}
	bill.Components, bill.Dependencies = &programs, &dependencies
	out, err := os.Create(filepath.Join(r.out, "quorumlock-"+r.number()+".cdx.json"))
	if err != nil {
		return err
	}
	encoder := cyclonedx.NewBOMEncoder(out, cyclonedx.BOMFileFormatJSON)
	return errors.Join(encoder.SetPretty(true).Encode(bill), out.Close())
}

// component returns a program and the libraries that are linked into it.
func (r *release) component(p platform, name string) (program cyclonedx.Component, uses []cyclonedx.Component, err error) {
	path := r.stage(p.dir(), p.executable(name))
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return program, nil, err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return program, nil, err
	}
	program = cyclonedx.Component{
		BOMRef: name + "-" + p.dir(), Type: cyclonedx.ComponentTypeApplication, Name: name, Version: r.version,
		Description: name + " for " + p.String(),
		Hashes:      &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: fmt.Sprintf("%x", sha256.Sum256(content))}},
	}
	uses = []cyclonedx.Component{library("std", strings.TrimPrefix(info.GoVersion, "go"), "")}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		uses = append(uses, library(module.Path, module.Version, module.Sum))
	}
	return program, uses, nil
}

// library returns a Go module. sum is its checksum in go.sum.
func library(path, version, sum string) cyclonedx.Component {
	url := "pkg:golang/" + path + "@" + version
	c := cyclonedx.Component{BOMRef: url, Type: cyclonedx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: url}
	if sum != "" {
		c.Properties = &[]cyclonedx.Property{{Name: "go:sum", Value: sum}}
	}
	return c
}
