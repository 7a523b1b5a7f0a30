package rig

import (
	"io"
	"os"
	"path/filepath"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
)

// TempFile makes a file with this name in a separate directory.
func TempFile(name string, write func(io.Writer) error) (path string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "floodwall-bench-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { os.RemoveAll(dir) }
	path = filepath.Join(dir, name)
	if err := report.WriteFile(path, write); err != nil {
		remove()
		return "", nil, err
	}
	return path, remove, nil
}
