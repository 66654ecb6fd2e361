package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// archive writes the programs for a platform with their documents: a zip file for Windows, a compressed tar file for
// others.
func (r *release) archive(p platform) error {
	base := "quorumlock-" + r.number() + "-" + p.dir()
	write, name := writeTarGz, base+".tar.gz"
	if p.os == "windows" {
		write, name = writeZip, base+".zip"
	}
	list := r.archived(p)
	for i := range list {
		list[i].name = base + "/" + list[i].name
	}
	out, err := os.Create(filepath.Join(r.out, name))
	if err != nil {
		return err
	}
	return errors.Join(write(out, list, r.time), out.Close())
}

// archived are the files of an archive, in the order of their names.
func (r *release) archived(p platform) []file {
	list := []file{
		{"CHANGELOG.md", filepath.Join(r.root, "CHANGELOG.md"), 0o644},
		{"LICENSE", filepath.Join(r.root, "LICENSE"), 0o644},
		{"README.md", filepath.Join(r.root, "README.md"), 0o644},
		{"third-party.txt", r.document("third-party.txt"), 0o644},
	}
	for _, name := range completions {
		list = append(list, file{"completions/" + name, r.document(name), 0o644})
	}
	pages := map[string]string{"qlock": "qlock.1", "qlockd": "qlockd.8"}
	for _, program := range p.programs() {
		list = append(list,
			file{p.executable(program), r.stage(p.dir(), p.executable(program)), 0o755},
			file{"man/" + pages[program], r.document(pages[program]), 0o644})
	}
	if slices.Contains(p.programs(), "qlockd") {
		list = append(list, file{"qlockd.yaml", r.files("qlockd.yaml"), 0o644})
	}
	slices.SortFunc(list, func(a, b file) int {
		if a.name < b.name {
			return -1
		}
		return 1
	})
	return list
}

func writeTarGz(w io.Writer, list []file, at time.Time) error {
	compressed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	return errors.Join(writeTar(compressed, list, at), compressed.Close())
}

// writeTar writes files that belong to root.
func writeTar(w io.Writer, list []file, at time.Time) error {
	out := tar.NewWriter(w)
	for _, f := range list {
		content, err := os.ReadFile(f.source)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: f.name, Mode: int64(f.mode), Size: int64(len(content)), ModTime: at, Format: tar.FormatPAX}
		if err := out.WriteHeader(header); err != nil {
			return err
		}
		if _, err := out.Write(content); err != nil {
			return err
		}
	}
	return out.Close()
}

func writeZip(w io.Writer, list []file, at time.Time) error {
	out := zip.NewWriter(w)
	for _, f := range list {
		content, err := os.ReadFile(f.source)
		if err != nil {
			return err
		}
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at}
		header.SetMode(f.mode)
		entry, err := out.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := entry.Write(content); err != nil {
			return err
		}
	}
	return out.Close()
}
