package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// image writes an OCI archive with the image for each Linux platform, as the Dockerfile describes it. The directory with
// what was built is its context.
func (r *release) image() error {
	dockerfile, err := os.ReadFile(filepath.Join(r.root, "scripts/package/Dockerfile"))
	if err != nil {
		return err
	}
	if err := errors.Join(os.WriteFile(r.stage("Dockerfile"), dockerfile, 0o644), os.MkdirAll(r.stage("data"), 0o755)); err != nil {
		return err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range r.platforms {
		if p.os != "linux" {
			continue
		}
		recipe, err := parseDockerfile(dockerfile, map[string]string{"TARGETARCH": p.arch, "VERSION": r.number()})
		if err != nil {
			return err
		}
		built, err := r.imageFor(p, recipe)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: built, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}},
		})
	}
	return r.writeImage(index)
}

// imageFor makes the image for one platform.
func (r *release) imageFor(p platform, recipe *recipe) (v1.Image, error) {
	created := v1.Time{Time: r.time}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, c := range recipe.copies {
		content, err := r.layer(c)
		if err != nil {
			return nil, err
		}
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, err
		}
		image, err = mutate.Append(image, mutate.Addendum{Layer: layer, MediaType: types.OCILayer, History: v1.History{Created: created, CreatedBy: c.instruction}})
		if err != nil {
			return nil, err
		}
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created, config.Config = p.os, p.arch, created, recipe.config
	return mutate.ConfigFile(image, config)
}

// layer returns a copied directory as a tar file, with the directories above it.
func (r *release) layer(c copied) ([]byte, error) {
	var content bytes.Buffer
	out := tar.NewWriter(&content)
	target := strings.Trim(c.to, "/") + "/"
	for i, char := range target {
		if char != '/' {
			continue
		}
		header := tar.Header{Typeflag: tar.TypeDir, Name: target[:i+1], Mode: 0o755, ModTime: r.time, Format: tar.FormatPAX}
		if header.Name == target {
			header.Uid, header.Gid = c.uid, c.gid
		}
		if err := out.WriteHeader(&header); err != nil {
			return nil, err
		}
	}
	entries, err := os.ReadDir(r.stage(c.from))
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		program, err := os.ReadFile(r.stage(c.from, entry.Name()))
		if err != nil {
			return nil, err
		}
		header := tar.Header{Name: target + entry.Name(), Mode: 0o755, Uid: c.uid, Gid: c.gid, Size: int64(len(program)), ModTime: r.time, Format: tar.FormatPAX}
		if err := out.WriteHeader(&header); err != nil {
			return nil, err
		}
		if _, err := out.Write(program); err != nil {
			return nil, err
		}
	}
	err = out.Close()
	return content.Bytes(), err
}

// writeImage writes an OCI layout as one file, as docker load, podman load and skopeo read it.
func (r *release) writeImage(index v1.ImageIndex) error {
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": r.number(),
		"io.containerd.image.name":          "docker.io/quorumlock/quorumlock:" + r.number(),
	})); err != nil {
		return err
	}
	var list []file
	err = filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		short, err := filepath.Rel(dir, name)
		list = append(list, file{filepath.ToSlash(short), name, 0o644})
		return err
	})
	if err != nil {
		return err
	}
	out, err := os.Create(filepath.Join(r.out, "quorumlock-"+r.number()+"-image.tar"))
	if err != nil {
		return err
	}
	return errors.Join(writeTar(out, list, r.time), out.Close())
}
