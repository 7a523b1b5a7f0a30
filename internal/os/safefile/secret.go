// This file reads keys from files that nobody else may read.

package safefile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// How long a secret of one line, and a file of several lines, may be, in bytes.
const (
	mostLine  = 4096
	mostBytes = 64 << 10
)

// exposed says that others may read a file with a secret.
func exposed(file, why string) error {
	return wording.Hinted(file+" "+why, fmt.Sprintf("chown root %[1]s; chmod 600 %[1]s", file))
}

// Read reads the secret that a file holds, without blanks around it. The file must be the superuser's or of who runs this, and neither its
// group nor others may read it. An error names the file.
func Read(file string) (string, error) {
	text, err := ReadFile(file)
	if err != nil {
		return "", err
	}
	key := strings.TrimSpace(string(text))
	switch {
	case key == "":
		return "", errors.New(file + " is empty")
	case len(text) > mostLine || strings.ContainsAny(key, "\r\n\x00"):
		return "", fmt.Errorf("%s is not one line of up to %d bytes", file, mostLine)
	}
	return key, nil
}

// ReadFile reads a file with a secret, of up to 64 KiB, that nobody else may read, as Read does.
func ReadFile(file string) ([]byte, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe does not hang
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	switch {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", file)
	case owner != 0 && owner != os.Geteuid():
		return nil, exposed(file, fmt.Sprintf("belongs to user %d", owner))
	case info.Mode().Perm()&0o077 != 0:
		return nil, exposed(file, fmt.Sprintf("has mode %04o: others may read or write it", info.Mode().Perm()))
	}
	text, err := io.ReadAll(io.LimitReader(f, mostBytes+1))
	if err == nil && len(text) > mostBytes {
		err = fmt.Errorf("%s has more than %d bytes", file, mostBytes)
	}
	return text, err
}
