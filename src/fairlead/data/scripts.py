"""The scripts that injected containers mount: they wait until a dataset is mounted, or fail."""

from typing import Final

FUSE_SCRIPT: Final = """\
#!/bin/bash
# check-mount.sh MOUNT_PATH FILE_SYSTEM [SUB_PATH]: wait until the fuse beside us has mounted the dataset.
mount_path=$1; file_system=$2; sub_path=$3
for second in $(seq 1 30); do
  if awk -v path="$mount_path" -v kind="$file_system" \\
      'index($5, path) == 1 && index($0, " - " kind) { found = 1 } END { exit !found }' /proc/self/mountinfo
  then
    [ -z "$sub_path" ] && exit 0
    for root in "$mount_path"/*; do [ -e "$root/$sub_path" ] && exit 0; done
  fi
  sleep 1
done
echo "nothing of type $file_system is mounted below $mount_path after 30 seconds" >&2
exit 1
"""

APP_SCRIPT: Final = """\
#!/bin/bash
# check-fluid-mount-ready.sh PATH[:PATH...] RUNTIME[:RUNTIME...]: wait until every dataset is mounted.
IFS=: read -r -a paths <<< "$1"
IFS=: read -r -a runtimes <<< "$2"
for i in "${!paths[@]}"; do
  kind=${runtimes[$i]}
  [ "$kind" = jindo ] && kind=fuse
  for second in $(seq 1 11); do
    if awk -v path="${paths[$i]}" -v kind="$kind" \\
        '$5 == path { sub(/.* - /, ""); if (index(tolower($1), kind)) found = 1 } END { exit !found }' \\
        /proc/self/mountinfo
    then break; fi
    if [ "$second" = 11 ]; then
      echo "${paths[$i]} is not mounted by $kind after 10 seconds" >&2
      exit 1
    fi
    sleep 1
  done
done
"""
