// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/os/safefile"
	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy"
)

// ReadDir reads a directory for signing. It returns the directory's files, and their content by SHA-256. It checks the policy.
func ReadDir(dir string) (files []File, content map[string][]byte, err error) {
	const what = "a bundle is a directory with a " + Policy + " and the lists that it names"
	switch info, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, wording.Hinted(dir+" is not there", what)
	case err == nil && !info.IsDir():
		return nil, nil, wording.Hinted(dir+" is no directory", what)
	}
	content = map[string][]byte{}
	text, err := readRegular(filepath.Join(dir, Policy))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, wording.Hinted(fmt.Sprintf("%s has no %s", dir, Policy), what)
	}
	if err != nil {
		return nil, nil, err
	}
	p, err := policy.Parse(filepath.Join(dir, Policy), text)
	if err != nil {
		return nil, nil, err
	}
	names, err := list(dir)
	if err != nil {
		return nil, nil, err
	}
	if err := CheckPolicy(p, names); err != nil {
		return nil, nil, err
	}
	for _, n := range names {
		b, err := readRegular(filepath.Join(dir, filepath.FromSlash(n)))
		if err != nil {
			return nil, nil, err
		}
		f := File{n, int64(len(b)), Sum(b)}
		files, content[f.Sum] = append(files, f), b
	}
	return files, content, nil
}

// list lists the files of a directory by name, except for those whose names begin with a dot.
func list(dir string) (names []string, err error) {
	err = filepath.WalkDir(dir, func(at string, e fs.DirEntry, err error) error {
		if err != nil || at == dir {
			return err
		}
		if strings.HasPrefix(e.Name(), ".") {
			if e.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if e.IsDir() {
			return nil
		}
		rel, err := filepath.Rel(dir, at)
		if names = append(names, filepath.ToSlash(rel)); len(names) > MaxFiles {
			return wording.Hinted(fmt.Sprintf("%s has more than %d files", dir, MaxFiles), "a bundle has the policy and its lists alone")
		}
		return err
	})
	slices.Sort(names)
	return names, err
}

// readRegular reads a regular file of limited size. It does not follow a link.
func readRegular(name string) ([]byte, error) {
	info, err := os.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, wording.Hinted(name+" is no regular file", "put a copy of the file into the directory")
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err == nil && len(b) > MaxFile {
		err = wording.Hinted(fmt.Sprintf("%s has more than %d bytes", name, MaxFile), "make the list smaller, or have the nodes fetch it by `url`")
	}
	return b, err
}

// Write writes the files of a manifest into a new directory. get returns the content of a file, and Write verifies the content. After an error, no
// file remains.
func Write(dir string, m *Manifest, get func(File) ([]byte, error)) (err error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return fmt.Errorf("bundle: %w", err)
	}
	to, err := os.MkdirTemp(filepath.Dir(dir), ".new-")
	if err != nil {
		return fmt.Errorf("bundle: %w", err)
	}
	defer os.RemoveAll(to)
	for _, f := range m.Files {
		b, err := get(f)
		if err != nil {
			return fmt.Errorf("file %s: %w", f.Name, err)
		}
		if int64(len(b)) != f.Size || Sum(b) != f.Sum {
			return fmt.Errorf("file %s is not the one of the manifest: %d bytes of SHA-256 %.12s, want %d of %.12s", f.Name, len(b), Sum(b), f.Size, f.Sum)
		}
		at := filepath.Join(to, filepath.FromSlash(f.Name))
		if err := cmp.Or(os.MkdirAll(filepath.Dir(at), 0o700), safefile.Create(at, b, 0o600)); err != nil {
			return fmt.Errorf("bundle: %w", err)
		}
	}
	if err := os.Rename(to, dir); err != nil {
		return fmt.Errorf("bundle: %w", err)
	}
	if err := safefile.SyncDir(filepath.Dir(dir)); err != nil {
		os.RemoveAll(dir)
		return fmt.Errorf("bundle: %w", err)
	}
	return nil
}

// ContentOf returns the Manifest.Content of the files that are in a directory now.
func ContentOf(dir string) (string, error) {
	names, err := list(dir)
	if err != nil {
		return "", fmt.Errorf("bundle: %w", err)
	}
	m := Manifest{}
	for _, n := range names {
		b, err := readRegular(filepath.Join(dir, filepath.FromSlash(n)))
		if err != nil {
			return "", fmt.Errorf("bundle: %w", err)
		}
		m.Files = append(m.Files, File{n, int64(len(b)), Sum(b)})
	}
	return m.Content(), nil
}
