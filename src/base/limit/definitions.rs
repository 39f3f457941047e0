//! The limits of agents, skills and commands that are markdown files.

/// Largest file that defines an agent or a command, in bytes.
pub const DEFINITION_FILE_BYTES_MAX: u64 = 256 << 10;
/// What stands between the two lines `---` of such a file, in bytes.
pub const FRONTMATTER_BYTES_MAX: usize = 64 << 10;
/// How deep lists and objects of it may lie in each other.
pub const FRONTMATTER_DEPTH_MAX: usize = 16;
/// Lists, objects and values of it.
pub const FRONTMATTER_NODES_MAX: usize = 10_000;
/// Files of one folder that are looked at, in the order of their names.
pub const DEFINITIONS_OF_FOLDER_MAX: usize = 500;
/// Folders whose files are remembered between two looks.
pub const DEFINITION_FOLDERS_MAX: usize = 1_000;
/// Bytes of files in these.
pub const DEFINITION_BYTES_KEPT_MAX: usize = 64 << 20;
/// Files that are left out and told of, of all folders of a place together.
pub const DEFINITION_FAULTS_MAX: usize = 100;
/// Longest name of an agent, a skill or a command in characters.
pub const DEFINITION_NAME_CHARS_MAX: usize = 64;
/// Longest description in bytes.
pub const DEFINITION_DESCRIPTION_BYTES_MAX: usize = 4_000;
/// Names of one list in a definition.
pub const DEFINITION_NAMES_MAX: usize = 500;
/// Largest limit of rounds that an agent can have.
pub const AGENT_ITERATIONS_MAX: u32 = 1_000;
/// Skills that a model is told of, in bytes of names and descriptions.
pub const SKILLS_TOLD_BYTES_MAX: usize = 16 << 10;
/// Files of a skill's folder that a model is told of.
pub const SKILL_FILES_TOLD_MAX: usize = 100;
/// How deep they may lie in it.
pub const SKILL_FOLDERS_DEPTH_MAX: usize = 4;
/// A file that was changed less than so long before it was read may be changed again without looking so.
pub const DEFINITION_YOUNG_MS: u64 = 2_000;
