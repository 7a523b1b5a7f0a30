package sockets

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Programs names the programs that have sockets open, by the numbers of /proc/PID/fd. Programs that this process may not look at are
// left out.
func Programs() Owners {
	o := Owners{}
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, file := range files {
		target, err := os.Readlink(file)
		if err != nil || !strings.HasPrefix(target, "socket:[") {
			continue
		}
		inode, err := strconv.ParseUint(strings.Trim(target, "socket:[]"), 10, 32)
		if err != nil {
			continue
		}
		name, err := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(file)), "comm"))
		if err == nil {
			o[uint32(inode)] = strings.TrimSpace(string(name))
		}
	}
	return o
}

// Owners are names of programs by the inodes of their sockets.
type Owners map[uint32]string

// Of is the program that has a socket, "" when it is not known.
func (o Owners) Of(s Socket) string { return o[s.inode] }
