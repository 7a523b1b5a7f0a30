package syntest

import (
	"os"
	"testing"

	"github.com/floodwall/floodwall/internal/testutil"
)

func TestMain(m *testing.M) { os.Exit(testutil.OwnMounts(m)) }
