-- move.sql: prints the statements that move schemas from one engine to another, with their foreign keys.
--
--   mariadb -N -r --init-command="SET @schemas='shop,blog', @from='InnoDB', @to='VARVE'" < move.sql > list.sql
--   mariadb < list.sql
--
-- A table with a foreign key can't change its engine, and a foreign key ties tables of one engine. So all
-- foreign keys go first, then the tables change, then the foreign keys come back, which checks every row: that
-- each has its parent is looked for before anything is changed, too. The list is made once, from what is there
-- before: keep it. If it is interrupted, or a statement fails, run the same list again from its beginning: it
-- goes on where it was. Until it has come to its end foreign keys are missing.
--
-- Tables that can't move, and those that are tied to them, stay: the list begins with their names and reasons.
SET SESSION group_concat_max_len = 1048576;

WITH RECURSIVE
  moving AS (
    SELECT table_schema AS s, table_name AS t, table_type AS type, create_options AS options
      FROM information_schema.tables
      WHERE engine = @from AND table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') AND FIND_IN_SET(table_schema, @schemas)
  ),
  tie AS (
    SELECT constraint_schema AS child_schema, table_name AS child, unique_constraint_schema AS parent_schema,
        referenced_table_name AS parent, constraint_name AS name, delete_rule, update_rule
      FROM information_schema.referential_constraints
  ),
  stays (s, t, why) AS (
    SELECT s, t, CAST(CONCAT('has a ', index_type, ' index') AS CHAR(200))
      FROM information_schema.statistics JOIN moving ON table_schema = s AND table_name = t
      WHERE @to = 'VARVE' AND index_type IN ('FULLTEXT', 'SPATIAL')
    UNION
    SELECT s, t, 'has a name that is too long for the engine: more than 240 bytes in the form that files have'
      FROM moving LEFT JOIN information_schema.partitions ON table_schema = s AND table_name = t
      WHERE @to = 'VARVE' AND GREATEST(LENGTH(CONVERT(s USING filename)), LENGTH(CONVERT(t USING filename))
        + IFNULL(LENGTH('#P#') + LENGTH(CONVERT(partition_name USING filename)), 0)
        + IFNULL(LENGTH('#SP#') + LENGTH(CONVERT(subpartition_name USING filename)), 0)) > 240
    UNION
    SELECT s, t, CONCAT('has a foreign key between a DATE and a number, which only InnoDB takes: ', constraint_name)
      FROM moving JOIN information_schema.key_column_usage AS k ON k.table_schema = s AND k.table_name = t
        JOIN information_schema.columns AS own
          ON (own.table_schema, own.table_name, own.column_name) = (k.table_schema, k.table_name, k.column_name)
        JOIN information_schema.columns AS its ON (its.table_schema, its.table_name, its.column_name)
          = (k.referenced_table_schema, k.referenced_table_name, k.referenced_column_name)
      WHERE @to = 'VARVE' AND 'date' IN (own.data_type, its.data_type) AND own.data_type <> its.data_type
    UNION
    SELECT s, t, 'is system-versioned: the server changes the engine of no such table to or from InnoDB' FROM moving
      WHERE type = 'SYSTEM VERSIONED' AND 'InnoDB' IN (@from, @to)
    UNION
    SELECT child_schema, child, CONCAT('has a parent that does not move: ', parent_schema, '.', parent)
      FROM tie WHERE (child_schema, child) IN (SELECT s, t FROM moving)
        AND (parent_schema, parent) NOT IN (SELECT s, t FROM moving)
    UNION
    SELECT parent_schema, parent, CONCAT('has a child that does not move: ', child_schema, '.', child)
      FROM tie WHERE (parent_schema, parent) IN (SELECT s, t FROM moving)
        AND (child_schema, child) NOT IN (SELECT s, t FROM moving)
    UNION
    SELECT IF((child_schema, child) = (s, t), parent_schema, child_schema), IF((child_schema, child) = (s, t), parent, child),
        'is tied to a table that stays'
      FROM stays JOIN tie ON (child_schema, child) = (s, t) OR (parent_schema, parent) = (s, t)
  ),
  goes AS (SELECT s, t FROM moving WHERE (s, t) NOT IN (SELECT s, t FROM stays)),
  ends AS (
    SELECT constraint_schema, table_name, constraint_name,
        GROUP_CONCAT('`', REPLACE(column_name, '`', '``'), '`' ORDER BY ordinal_position SEPARATOR ', ') AS own,
        GROUP_CONCAT('`', REPLACE(referenced_column_name, '`', '``'), '`' ORDER BY ordinal_position SEPARATOR ', ') AS its,
        GROUP_CONCAT('c.`', REPLACE(column_name, '`', '``'), '` = p.`', REPLACE(referenced_column_name, '`', '``'), '`'
          ORDER BY ordinal_position SEPARATOR ' AND ') AS same,
        GROUP_CONCAT('c.`', REPLACE(column_name, '`', '``'), '` IS NOT NULL' ORDER BY ordinal_position SEPARATOR ' AND ') AS refers,
        GROUP_CONCAT('p.`', REPLACE(referenced_column_name, '`', '``'), '` IS NULL' ORDER BY ordinal_position SEPARATOR ' AND ') AS lacks
      FROM information_schema.key_column_usage WHERE referenced_table_name IS NOT NULL
      GROUP BY constraint_schema, table_name, constraint_name
  ),
  key_list AS (
    SELECT s, t, name, CONCAT('`', REPLACE(s, '`', '``'), '`.`', REPLACE(t, '`', '``'), '`') AS its_table,
        CONCAT('`', REPLACE(parent_schema, '`', '``'), '`.`', REPLACE(parent, '`', '``'), '`') AS parent_table,
        CONCAT('`', REPLACE(name, '`', '``'), '`') AS its_name, own, its, same, refers, lacks, delete_rule, update_rule
      FROM goes JOIN tie ON (child_schema, child) = (s, t)
        JOIN ends ON (constraint_schema, table_name, constraint_name) = (s, t, name)
  ),
  -- What is done for tables that have not moved yet. Foreign keys come back when all have.
  first_half AS (
    SELECT s, t, CONCAT('BEGIN NOT ATOMIC IF (SELECT engine FROM information_schema.tables WHERE table_schema = ', QUOTE(s),
        ' AND table_name = ', QUOTE(t), ') = ', QUOTE(@from), ' THEN ') AS if_it_has_not_moved, ' END IF; END//' AS ends_here FROM goes
  ),
  list (step, statement) AS (
    SELECT 1, CONCAT('-- stays: ', s, '.', t, ' ', MIN(why)) FROM stays WHERE (s, t) IN (SELECT s, t FROM moving) GROUP BY s, t
    UNION ALL
    SELECT 2, 'DELIMITER //'
    UNION ALL
    SELECT 3, CONCAT('BEGIN NOT ATOMIC IF EXISTS (SELECT * FROM ', its_table, ' c LEFT JOIN ', parent_table, ' p ON ', same, ' WHERE ',
        refers, ' AND ', lacks, ') THEN SIGNAL SQLSTATE ''45000'' SET MESSAGE_TEXT = ',
        QUOTE(CONCAT('rows of ', s, '.', t, ' have no parent by ', name, '; nothing was changed now')), '; END IF; END//')
      FROM key_list
    UNION ALL
    SELECT 4, CONCAT(if_it_has_not_moved, 'ALTER TABLE ', its_table, ' ', GROUP_CONCAT('DROP FOREIGN KEY IF EXISTS ', its_name
        ORDER BY name SEPARATOR ', '), ';', ends_here)
      FROM key_list JOIN first_half USING (s, t) GROUP BY s, t
    UNION ALL
    SELECT 5, CONCAT(if_it_has_not_moved, 'ALTER TABLE `', REPLACE(s, '`', '``'), '`.`', REPLACE(t, '`', '``'), '` ENGINE=', @to, ';',
        ends_here)
      FROM first_half
    UNION ALL
    SELECT 6, CONCAT('ALTER TABLE ', its_table, ' ', GROUP_CONCAT('ADD CONSTRAINT ', its_name, ' FOREIGN KEY IF NOT EXISTS (', own,
        ') REFERENCES ', parent_table, ' (', its, ') ON DELETE ', delete_rule, ' ON UPDATE ', update_rule
        ORDER BY name SEPARATOR ', '), '//')
      FROM key_list GROUP BY s, t
    UNION ALL
    SELECT 7, 'DELIMITER ;'
  )
SELECT statement FROM list ORDER BY step, statement;
