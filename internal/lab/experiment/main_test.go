package experiment

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	Roles()
	os.Exit(m.Run())
}
